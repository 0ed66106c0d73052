"""Every error of every method of a gateway carries one ErrorInfo, as a client in another process sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from tests.support.command_line import start
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MAX_BYTES = 16 << 20
MESSAGES = {
    "empty": b"",
    "garbage": b"\xff\xff\xff",
    "unknown ids": b"\x0a\x04nope\x12\x04nope",
    "too large": b"\x0a" + b"\x80\x80\x80\x09" + b"x" * (MAX_BYTES + (2 << 20)),
}


def methods(channel: grpc.Channel) -> Iterator[MethodDescriptor]:
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    for name in database.get_services():
        if name.startswith(("dramaturg.", "grpc.health.")):
            file: FileDescriptor = pool.FindServiceByName(name).file
            yield from file.services_by_name[name.rpartition(".")[2]].methods


def fault(channel: grpc.Channel, method: MethodDescriptor, content: bytes) -> str:
    """What the error of a call lacks; empty if it lacks nothing, or there is no error."""
    requests, responses = method.client_streaming, method.server_streaming
    arity = f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}"
    service = method.containing_service.full_name
    call = getattr(channel, arity)(f"/{service}/{method.name}")
    try:
        answer = call(iter([content]) if requests else content, timeout=5)
        if responses:
            next(iter(answer), None)
            answer.cancel()
    except grpc.RpcError as error:
        status = rpc_status.from_call(error)
        found = [] if status is None else [one for one in status.details if one.Is(_INFO.DESCRIPTOR)]
        if len(found) != 1:
            return f"{method.full_name}: {error.code().name} {error.details()}: {len(found)} ErrorInfo"
        info = error_details_pb2.ErrorInfo.FromString(found[0].value)
        if info.domain != "dramaturg.api" or info.reason not in ErrorReason.DESCRIPTOR.values_by_name:
            return f"{method.full_name}: {info}"
    return ""


_INFO = error_details_pb2.ErrorInfo()


async def test_every_error_of_every_method_has_one_error_info(tmp_path: Path) -> None:
    port = free_port()
    environment = {
        "DRAMATURG_RUNS_URL": f"sqlite:///{tmp_path}/runs.sqlite3",
        "DRAMATURG_GENERATION_LEDGER": ":memory:",
    }
    async with start("up", "--port", str(port), environment=environment) as process:

        def sweep() -> tuple[int, list[str]]:
            options = [("grpc.max_send_message_length", -1)]
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
                grpc.channel_ready_future(channel).result(timeout=60)
                all_methods = list(methods(channel))
                return len(all_methods), [
                    f"{name}: {lacks}"
                    for method in all_methods
                    for name, content in MESSAGES.items()
                    if (lacks := fault(channel, method, content))
                ]

        count, faults = await asyncio.to_thread(sweep)
        process.terminate()
        await process.wait()
    assert count > 40
    assert not faults, "\n".join(faults)
