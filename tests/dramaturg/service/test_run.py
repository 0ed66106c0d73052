"""A service as a process: how it starts, stops and fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from tests.support.grpc_servers import silent, synthesize_request, synthesizer

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = textwrap.dedent(
    """
    import asyncio
    import os
    from contextlib import asynccontextmanager
    import grpc
    from dramaturg.service.server import run
    from tests.support.grpc_servers import SynthesizeResponse, synthesizer

    async def work(request, context):
        print("entered", flush=True)
        await asyncio.sleep(0.5 if request.task.id == "slow" else 0)
        return SynthesizeResponse()

    class App:
        name = "test"
        public = "PUBLIC" in os.environ

        @asynccontextmanager
        async def open(self):
            yield [synthesizer(work)]
            print("closed", flush=True)

    class Announcing(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation, details):
            print("intercepted", flush=True)
            return await continuation(details)

    if "POLICY" in os.environ:
        os.sched_setscheduler(0, int(os.environ["POLICY"]), os.sched_param(0))
    run(App, interceptors=[Announcing()] if "ANNOUNCE" in os.environ else [])
    """
)


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout
        return (await asyncio.wait_for(self.process.stdout.readline(), 20)).decode().strip()

    async def log(self, message: str) -> dict[str, Any]:
        """The next record with this message."""
        assert self.process.stderr
        while text := await asyncio.wait_for(self.process.stderr.readline(), 20):
            record: dict[str, Any] = json.loads(text)
            if record["message"] == message:
                return record
        raise AssertionError(f"the process ended without a record {message!r}")


@asynccontextmanager
async def started(*arguments: str, **variables: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *arguments),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_the_process_and_loses_no_call(number: signal.Signals) -> None:
    async with started("--port", "0") as service:
        target = (await service.log("listening"))["address"]
        async with open_channel(target) as channel:
            call = asyncio.ensure_future(
                SynthesizeServiceStub(channel).Synthesize(synthesize_request(id="slow"))
            )
            assert await service.line() == "entered"
            service.process.send_signal(number)
            await service.log("draining")
            await call
        assert await service.line() == "closed"
        assert await asyncio.wait_for(service.process.wait(), 20) == 0


async def test_calls_pass_the_interceptors_given() -> None:
    async with started("--port", "0", ANNOUNCE="1") as service:
        target = (await service.log("listening"))["address"]
        async with open_channel(target) as channel:
            await SynthesizeServiceStub(channel).Synthesize(synthesize_request())
        assert [await service.line() for _ in range(2)] == ["intercepted", "entered"]


async def test_a_dead_collector_holds_up_neither_the_drain_nor_the_end() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as collector:  # accepts, and says nothing
        address = f"http://127.0.0.1:{collector.getsockname()[1]}"
        variables = {"DRAMATURG_TRACES_ENDPOINT": address, "DRAMATURG_TRACES_FLUSH_SECONDS": "0.5"}
        async with started("--port", "0", **variables) as service:
            target = (await service.log("listening"))["address"]
            async with open_channel(target) as channel:
                call = asyncio.ensure_future(
                    SynthesizeServiceStub(channel).Synthesize(synthesize_request(id="slow"))
                )
                assert await service.line() == "entered"
                service.process.send_signal(signal.SIGTERM)
                await call
            await service.log("stopped")
            begun = time.monotonic()
            assert await asyncio.wait_for(service.process.wait(), 20) == 0
            assert time.monotonic() - begun < 6, "it waited for the collector"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    async with started("--port", "0", DRAMATURG_SERVER_DRAIN_DELAY_SECONDS="60") as service:
        await service.log("listening")
        service.process.send_signal(number)
        await service.log("draining")
        service.process.send_signal(number)
        code = await asyncio.wait_for(service.process.wait(), 10)
    assert code in {-number, 128 + number}


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ((), {"DRAMATURG_SERVER_PORT": "many"}, "port"),
        ((), {"DRAMATURG_CONFIG": "/nowhere/dramaturg.toml"}, "/nowhere/dramaturg.toml"),
        (("--port", "70000"), {}, "port"),
        ((), {"DRAMATURG_SERVER_TLS_CERTIFICATE_FILE": "/nowhere/c.pem"}, "tls_private_key_file"),
        ((), {"DRAMATURG_SERVR_PORT": "1"}, "is DRAMATURG_SERVER_PORT meant?"),
    ],
)
async def test_bad_settings_end_with_a_message_and_code_2(
    arguments: tuple[str, ...], variables: dict[str, str], message: str
) -> None:
    async with started(*arguments, **variables) as service:
        _, errors = await asyncio.wait_for(service.process.communicate(), 20)
    assert service.process.returncode == 2
    assert message in errors.decode()
    assert "Traceback" not in errors.decode()


async def test_a_gateway_that_authenticates_nobody_listens_on_loopback_alone() -> None:
    exposed = ("--host", "0.0.0.0", "--port", "0")
    async with started(*exposed, PUBLIC="1") as service:
        _, errors = await asyncio.wait_for(service.process.communicate(), 20)
    assert service.process.returncode == 2
    assert "DRAMATURG_AUTH_ALLOW_ANONYMOUS=true" in errors.decode()
    for arguments, variables in [
        (("--port", "0"), {"PUBLIC": "1"}),
        (exposed, {"PUBLIC": "1", "DRAMATURG_AUTH_ALLOW_ANONYMOUS": "true"}),
        (exposed, {}),
    ]:
        async with started(*arguments, **variables) as service:
            address = (await service.log("listening"))["address"]
        assert address.startswith("0.0.0.0:" if arguments == exposed else "127.0.0.1:")


async def test_a_port_in_use_ends_with_a_message_and_code_1() -> None:
    async with serve(synthesizer(silent)) as server, started("--port", str(server.port)) as service:
        _, errors = await asyncio.wait_for(service.process.communicate(), 20)
    assert service.process.returncode == 1
    assert f"cannot listen on 127.0.0.1:{server.port}" in errors.decode().splitlines()[-1]
    assert "Traceback" not in errors.decode()


def policies(pid: int) -> set[int]:
    """The scheduling policies of the threads of a process."""
    return {os.sched_getscheduler(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()}


@pytest.mark.skipif(sys.platform != "linux", reason="the policies of Linux")
async def test_services_behind_the_gateway_run_under_the_batch_policy() -> None:
    cases: tuple[tuple[dict[str, str], int], ...] = (
        ({}, os.SCHED_BATCH),
        ({"PUBLIC": "1"}, os.SCHED_OTHER),
        ({"POLICY": str(os.SCHED_IDLE)}, os.SCHED_IDLE),  # given by who starts it
    )
    for variables, policy in cases:
        async with started("--port", "0", **variables) as service:
            await service.log("listening")
            assert policies(service.process.pid) == {policy}
