"""RunService over real gRPC, on a SQLite store, with an engine that only notes what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2, run_service_pb2_grpc
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    Dataset,
    DatasetManifest,
    RunSpec,
    RunState,
)
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.testing import serve
from gateway.judges.registry import open_registry
from gateway.runs.datasets import DatasetAccess
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.records import RunRecord
from gateway.runs.servicer import RunServicer
from gateway.runs.store import RunStore, open_store
from gateway.settings import JudgeEntry
from tests.support.runs import create


@dataclass
class NotingEngine:
    """Does nothing, and knows what it was told."""

    submitted: list[str] = field(default_factory=list)

    async def submit(self, run_id: str) -> None:
        self.submitted.append(run_id)


class NotingNotifier(ChangeNotifier):
    """Knows which runs it notified of."""

    def __init__(self) -> None:
        super().__init__()
        self.notified: list[str] = []

    def notify(self, run_id: str) -> None:
        self.notified.append(run_id)
        super().notify(run_id)


@dataclass
class Service:
    """A running RunService and what is behind it."""

    stub: run_service_pb2_grpc.RunServiceAsyncStub
    store: RunStore
    engine: NotingEngine
    notifier: NotingNotifier
    folder: Path

    def run(self, state: RunState.ValueType, run_id: str = "run", samples: int = 3, **fields: Any) -> None:
        """Makes a run in a state."""
        create(self.store, run_id, samples, **fields)
        self.store.runs.set_manifest(run_id, DatasetManifest(sha256="x"))
        if state != RUN_STATE_PREPARING:
            self.store.runs.change_state(run_id, RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
            self.store.runs.change_state(run_id, state, expected=[RUN_STATE_RUNNING])

    def kept(self, run_id: str = "run") -> RunRecord:
        """The run as it is kept."""
        run = self.store.runs.get(run_id)
        assert run is not None
        return run


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """The service. It knows one judge, and reads files below ``folder``."""
    store, engine, notifier = (
        open_store(f"sqlite:///{tmp_path}/runs.sqlite3"),
        NotingEngine(),
        NotingNotifier(),
    )
    folder = tmp_path / "datasets"
    folder.mkdir()
    judges = [JudgeEntry(role="critic", name="strict", target="localhost:1")]
    async with open_registry(judges, 4) as registry:
        servicer = RunServicer(store, engine, registry, DatasetAccess([folder]), notifier)
        contract = Contract.make(
            run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
            run_service_pb2_grpc.add_RunServiceServicer_to_server,
            servicer,
            name="gateway",
            version="1.0.0",
            description="Runs.",
        )
        async with serve(contract, drain_grace_seconds=0.2) as server, open_channel(server.target) as channel:
            yield Service(run_service_pb2_grpc.RunServiceStub(channel), store, engine, notifier, folder)
        servicer.close()
    store.close()


async def fault(call: Any) -> ServiceError:
    """The error that a call, or a stream of responses, ends with."""

    async def finish() -> None:
        if isinstance(call, grpc.aio.UnaryStreamCall):
            async for _ in call:
                pass
        else:
            await call

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await finish()
    return from_rpc_error(raised.value)


def wanted(**fields: Any) -> RunSpec:
    """A spec that is valid."""
    spec = RunSpec(**{"dataset": Dataset(content=b"{}\n"), **fields})
    if spec.WhichOneof("evaluation") is None:
        spec.scripts.SetInParent()
    return spec
