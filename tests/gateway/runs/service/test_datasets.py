"""DatasetService over real gRPC, beside RunService on the same store."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.evaluation.v1 import dataset_service_pb2 as pb
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.dataset_service_pb2_grpc import DatasetServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import Dataset
from dramaturg.api.evaluation.v1.run_service_pb2 import CreateRunRequest
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from gateway.app import App
from gateway.quotas.settings import Quota, QuotaSettings
from gateway.runs.service.datasets import CHUNK_BYTES
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings
from tests.gateway.runs.service.conftest import fault, wanted
from tests.support.auth import channel_of, holder, token_settings
from tests.support.engines import lines, script_rows

ALICE, BOB, VIEWER = holder("team-a", "evaluator"), holder("team-b", "evaluator"), holder("team-a", "viewer")
READY, UPLOADING = pb.DATASET_STATE_READY, pb.DATASET_STATE_UPLOADING


@dataclass
class Tenants:
    """A gateway as two tenants have it."""

    alice: grpc.aio.Channel
    bob: grpc.aio.Channel
    viewer: grpc.aio.Channel


@asynccontextmanager
async def serve_tenants(folder: Path, quota: Quota | None = None, **settings: Any) -> AsyncIterator[Tenants]:
    runs = RunsSettings(
        enabled=True, url=f"sqlite:///{folder}/runs.sqlite3", drain_timeout_seconds=0, **settings
    )
    auth = token_settings(folder, ALICE, BOB, VIEWER)
    quotas = QuotaSettings(default=quota or Quota())
    async with (
        App(GatewaySettings(), runs, quotas).open() as contracts,
        Server(contracts, ServerSettings.loopback(drain_grace_seconds=0.2), auth) as server,
        channel_of(server.target, folder, ALICE) as alice,
        channel_of(server.target, folder, BOB) as bob,
        channel_of(server.target, folder, VIEWER) as viewer,
    ):
        yield Tenants(alice, bob, viewer)


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[Tenants]:
    async with serve_tenants(tmp_path, max_upload_bytes=5 << 20) as served:
        yield served


def id_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def begin(channel: grpc.aio.Channel, content: bytes, **fields: Any) -> pb.UploadedDataset:
    request = pb.CreateDatasetRequest(sha256=id_of(content), byte_count=len(content), **fields)
    created: pb.UploadedDataset = (await DatasetServiceStub(channel).CreateDataset(request)).dataset
    return created


def messages(dataset_id: str, chunks: Iterable[bytes], offset: int = 0) -> list[pb.WriteDatasetRequest]:
    return [pb.WriteDatasetRequest(dataset_id=dataset_id, offset=offset, chunk=chunk) for chunk in chunks]


async def write(
    channel: grpc.aio.Channel, dataset_id: str, *chunks: bytes, offset: int = 0
) -> pb.UploadedDataset:
    call = DatasetServiceStub(channel).WriteDataset(iter(messages(dataset_id, chunks, offset)))
    written: pb.UploadedDataset = (await call).dataset
    return written


async def upload(channel: grpc.aio.Channel, content: bytes, **fields: Any) -> pb.UploadedDataset:
    created = await begin(channel, content, **fields)
    return await write(channel, created.id, content)


async def get(channel: grpc.aio.Channel, dataset_id: str) -> pb.UploadedDataset:
    request = pb.GetDatasetRequest(dataset_id=dataset_id)
    found: pb.UploadedDataset = (await DatasetServiceStub(channel).GetDataset(request)).dataset
    return found


async def refusal(call: Any) -> ServiceError:
    """The error of a coroutine of this module."""

    async def done() -> None:
        await call

    return await fault(done())


async def test_content_arrives_in_any_pieces(tenants: Tenants) -> None:
    content = bytes(range(256)) * 10_000
    created = await begin(tenants.alice, content, display_name="rows.csv")
    assert (created.id, created.state, created.format) == (
        id_of(content),
        UPLOADING,
        run_pb2.DATASET_FORMAT_CSV,
    )
    assert created.expire_time.seconds > created.create_time.seconds
    part = await write(tenants.alice, created.id, content[:10], content[10:1_500_000])
    assert (part.received_byte_count, part.state) == (1_500_000, UPLOADING)
    ready = await write(tenants.alice, created.id, content[1_500_000:], offset=1_500_000)
    assert (ready.received_byte_count, ready.byte_count, ready.state) == (len(content), len(content), READY)
    assert not ready.HasField("expire_time")
    assert await begin(tenants.alice, content) == ready
    assert await write(tenants.alice, ready.id, b"", offset=len(content)) == ready


async def test_a_broken_stream_keeps_what_was_received(tenants: Tenants) -> None:
    content = b"x" * (3 * CHUNK_BYTES + 5)
    created = await begin(tenants.alice, content)
    released = asyncio.Event()

    async def pieces() -> AsyncIterator[pb.WriteDatasetRequest]:
        for message in messages(created.id, [content[: 2 * CHUNK_BYTES + 9]]):
            yield message
        await released.wait()

    call = DatasetServiceStub(tenants.alice).WriteDataset(pieces())
    async with asyncio.timeout(30):
        received = 0
        while received < 2 * CHUNK_BYTES:
            received = (await get(tenants.alice, created.id)).received_byte_count
        call.cancel()
        # Bytes below a full piece may be stored after the end of the stream.
        dataset = await get(tenants.alice, created.id)
        while dataset.state != READY:
            received = dataset.received_byte_count
            with suppress(grpc.aio.AioRpcError):
                await write(tenants.alice, created.id, content[received:], offset=received)
            dataset = await get(tenants.alice, created.id)


async def test_wrong_bytes_are_refused(tenants: Tenants) -> None:
    created = await begin(tenants.alice, b"12345")
    await write(tenants.alice, created.id, b"12")
    moved = await refusal(write(tenants.alice, created.id, b"345", offset=3))
    assert moved.reason == reasons.ERROR_REASON_DATASET_STATE
    assert moved.metadata == {"dataset_id": created.id, "received_byte_count": "2"}
    longer = await refusal(write(tenants.alice, created.id, b"3456", offset=2))
    assert [violation.field for violation in longer.violations] == ["chunk"]
    other = await refusal(write(tenants.alice, created.id, b"999", offset=2))
    assert other.code is grpc.StatusCode.INVALID_ARGUMENT
    assert id_of(b"12999") in other.message
    gone = await refusal(get(tenants.alice, created.id))
    assert gone.reason == reasons.ERROR_REASON_RESOURCE_NOT_FOUND, "nothing of it is kept"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sha256": "A" * 64}, "sha256"),
        ({"sha256": "0" * 63}, "sha256"),
        ({"sha256": ""}, "sha256"),
        ({"byte_count": 0}, "byte_count"),
        ({"byte_count": (5 << 20) + 1}, "byte_count"),
        ({"display_name": "x" * 201}, "display_name"),
    ],
)
async def test_limits_are_those_of_the_contract_and_the_settings(
    tenants: Tenants, fields: dict[str, Any], field: str
) -> None:
    request = pb.CreateDatasetRequest(**{"sha256": "0" * 64, "byte_count": 5 << 20, **fields})
    error = await fault(DatasetServiceStub(tenants.alice).CreateDataset(request))
    assert [violation.field for violation in error.violations] == [field]


async def test_one_content_has_one_size(tenants: Tenants) -> None:
    await begin(tenants.alice, b"12345")
    request = pb.CreateDatasetRequest(sha256=id_of(b"12345"), byte_count=6)
    error = await fault(DatasetServiceStub(tenants.alice).CreateDataset(request))
    assert [violation.field for violation in error.violations] == ["byte_count"]


async def test_a_dataset_is_its_tenants_alone(tenants: Tenants) -> None:
    made = await upload(tenants.alice, lines(script_rows(2)))
    datasets = DatasetServiceStub(tenants.bob)
    spec = wanted(dataset=Dataset(dataset_id=made.id))
    for call in (
        get(tenants.bob, made.id),
        write(tenants.bob, made.id, b"x"),
        datasets.DeleteDataset(pb.DeleteDatasetRequest(dataset_id=made.id)),
        RunServiceStub(tenants.bob).CreateRun(CreateRunRequest(spec=spec)),
    ):
        error = await refusal(call)
        assert error.reason == reasons.ERROR_REASON_RESOURCE_NOT_FOUND
    assert not (await datasets.ListDatasets(pb.ListDatasetsRequest())).datasets
    assert (await begin(tenants.bob, lines(script_rows(2)))).received_byte_count == 0
    assert (await get(tenants.viewer, made.id)).state == READY
    denied = await refusal(begin(tenants.viewer, b"x"))
    assert denied.reason == reasons.ERROR_REASON_PERMISSION_DENIED


async def test_datasets_are_listed_in_pages(tenants: Tenants) -> None:
    made = [(await upload(tenants.alice, bytes([index]))).id for index in range(5)]
    request, found = pb.ListDatasetsRequest(page_size=2), []
    while True:
        page = await DatasetServiceStub(tenants.alice).ListDatasets(request)
        found += [dataset.id for dataset in page.datasets]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == made[::-1]
    all_of_them = await DatasetServiceStub(tenants.alice).ListDatasets(pb.ListDatasetsRequest(page_size=9999))
    assert len(all_of_them.datasets) == 5


async def test_a_tenant_has_a_quota_of_bytes(tmp_path: Path) -> None:
    async with serve_tenants(tmp_path, Quota(dataset_bytes=1_000_000)) as tenants:
        await begin(tenants.alice, b"x" * 600_000)
        error = await refusal(begin(tenants.alice, b"y" * 600_000))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.reason == reasons.ERROR_REASON_QUOTA_EXHAUSTED
        assert error.metadata == {"quota": "dataset_bytes", "limit": "1000000"}
        await begin(tenants.bob, b"y" * 600_000)


async def test_a_run_refers_to_a_complete_dataset(tenants: Tenants) -> None:
    content = lines(script_rows(3))
    runs = RunServiceStub(tenants.alice)
    spec = wanted(dataset=Dataset(dataset_id=id_of(content)), models=["m"])
    missing = await fault(runs.CreateRun(CreateRunRequest(spec=spec)))
    assert missing.reason == reasons.ERROR_REASON_RESOURCE_NOT_FOUND
    created = await begin(tenants.alice, content)
    early = await fault(runs.CreateRun(CreateRunRequest(spec=spec)))
    assert early.code is grpc.StatusCode.FAILED_PRECONDITION
    assert early.reason == reasons.ERROR_REASON_DATASET_STATE
    await write(tenants.alice, created.id, content)
    # The gateway has no judges: the rows are read, and none of them can be planned.
    planned = await fault(runs.CreateRun(CreateRunRequest(spec=spec)))
    assert planned.message.startswith("no row can be evaluated; line 1:")
