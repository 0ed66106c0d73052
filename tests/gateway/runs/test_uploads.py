"""Uploads from another process, through gateways that are killed and share a store."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.dataset_service_pb2 import (
    DATASET_STATE_UPLOADING,
    CreateDatasetRequest,
    WriteDatasetRequest,
)
from dramaturg.api.evaluation.v1.dataset_service_pb2_grpc import DatasetServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import Dataset
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from gateway.runs.records import ACTIVE
from tests.support.command_line import dramaturg
from tests.support.engines import judges_of, lines, script_rows, scripts_spec
from tests.support.gateway import agents
from tests.support.processes import ForkedService

pytestmark = pytest.mark.timeout(180)


@asynccontextmanager
async def gateways(folder: Path, url: str, count: int, **settings: str) -> AsyncIterator[list[ForkedService]]:
    """Gateways as processes of their own, which share a store and judges."""
    async with judges_of(agents()) as entries:
        configuration = folder / "dramaturg.toml"
        configuration.write_text(
            "".join(
                f'[[gateway.judges]]\nrole = "{one.role}"\nname = "{one.name}"\ntarget = "{one.target}"\n'
                for one in entries
            )
        )
        environment = {
            "DRAMATURG_CONFIG": str(configuration),
            "DRAMATURG_RUNS_ENABLED": "true",
            "DRAMATURG_RUNS_URL": url,
            "DRAMATURG_RUNS_LEASE_SECONDS": "6",
            "DRAMATURG_RUNS_LEASE_RENEWAL_SECONDS": "1",
            **settings,
        }
        made = [ForkedService(folder, environment, "serve", "gateway") for _ in range(count)]
        try:
            for process in made:
                await process.start()
            yield made
        finally:
            await asyncio.gather(*(process.kill() for process in made))


async def test_an_upload_survives_the_loss_of_its_gateway(tmp_path: Path, postgres_url: str) -> None:
    content = random.Random(0).randbytes(6 << 20)
    dataset_id = hashlib.sha256(content).hexdigest()
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content)
    async with gateways(tmp_path, postgres_url, 2) as (first, second):
        async with DramaturgClient(first.target) as client:
            stub = DatasetServiceStub(client.channel)
            await stub.CreateDataset(CreateDatasetRequest(sha256=dataset_id, byte_count=len(content)))

            async def slowly() -> AsyncIterator[WriteDatasetRequest]:
                yield WriteDatasetRequest(dataset_id=dataset_id, chunk=content[: 3 << 20])
                await asyncio.Event().wait()

            call = stub.WriteDataset(slowly())
            async with asyncio.timeout(60):
                received = 0
                while received < 3 << 20:
                    received = (await client.datasets.get(dataset_id)).received_byte_count
            await first.kill()
            call.cancel()
        async with DramaturgClient(second.target) as client:
            assert (await client.datasets.get(dataset_id)).received_byte_count == 3 << 20
        # The command continues where the lost gateway was.
        done = await dramaturg("runs", "datasets", "upload", file, "--target", second.target, "--json")
        assert done.code == 0, done.err
        assert (done.json["id"], done.json["state"]) == (dataset_id, "ready")
        assert "upload: 3,145,728 of 6,291,456 bytes" in done.err
        listed = await dramaturg("runs", "datasets", "list", "--target", second.target, "--json")
        assert [one["id"] for one in listed.json["datasets"]] == [dataset_id]
        assert (
            await dramaturg("runs", "datasets", "delete", dataset_id, "--target", second.target)
        ).code == 0
        gone = await dramaturg("runs", "datasets", "delete", dataset_id, "--target", second.target)
        assert gone.code == 2
        assert "does not exist" in gone.err


async def test_a_large_file_is_uploaded_for_a_run(tmp_path: Path) -> None:
    rows = script_rows(90)
    for row in rows:
        row.candidates[0].ClearField("script")  # type: ignore[attr-defined]
        row.candidates[0].text = "Boil water and wait. " * 9_000  # type: ignore[attr-defined]
    file = tmp_path / "rows.jsonl"
    file.write_bytes(lines(rows))
    url = f"sqlite:///{tmp_path}/runs.sqlite3"
    async with gateways(tmp_path, url, 1) as (gateway,):
        command = ("eval", file, "--target", gateway.target, "--detach", "--json")
        done = await dramaturg(*command)
        assert done.code == 0, done.err
        assert "upload: 0 of" in done.err
        async with DramaturgClient(gateway.target) as client, asyncio.timeout(90):
            run = await client.runs.get(done.json["id"])
            while run.state in ACTIVE:
                await asyncio.sleep(0.1)
                run = await client.runs.get(run.id)
            dataset_id = run.spec.dataset.dataset_id
            assert run.dataset.uri == f"datasets/{dataset_id}"
            assert (run.dataset.sha256, run.dataset.byte_count > 15 << 20) == (dataset_id, True)
            assert run.dataset.row_count == 90
            assert run.progress.succeeded_count == 90
            assert run.dataset.format == run_pb2.DATASET_FORMAT_JSONL
            named = ("eval", f"datasets/{dataset_id}", "--by-reference", "--kind", "scripts", "--limit", "1")
            again = await dramaturg(*named, *command[2:])
            assert again.code == 0, again.err
            other = await client.runs.get(again.json["id"])
            while other.state in ACTIVE:
                await asyncio.sleep(0.1)
                other = await client.runs.get(other.id)
            assert (other.dataset.uri, other.dataset.row_count) == (f"datasets/{dataset_id}", 1)
            # Its samples are read: the dataset is not needed any more.
            await client.datasets.delete(dataset_id)
            spec = scripts_spec(dataset=Dataset(dataset_id=dataset_id))
            with pytest.raises(ServiceError, match="does not exist"):
                await client.runs.create(spec)


async def test_an_unfinished_upload_is_removed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.sqlite3"
    request = CreateDatasetRequest(sha256=hashlib.sha256(b"12").hexdigest(), byte_count=2)
    async with gateways(tmp_path, url, 1, DRAMATURG_RUNS_UPLOAD_EXPIRY_SECONDS="1") as (gateway,):
        async with DramaturgClient(gateway.target) as client:
            created = (await DatasetServiceStub(client.channel).CreateDataset(request)).dataset
        assert created.state == DATASET_STATE_UPLOADING
        await gateway.kill()
        await asyncio.sleep(max(0.0, created.expire_time.ToNanoseconds() / 1e9 - time.time()))
        await gateway.start()
        async with DramaturgClient(gateway.target) as client, asyncio.timeout(60):
            left = [created]
            while left:
                left = [one async for one in client.datasets.find()]
