"""Two tenants and their runs: neither sees, changes or infers the other's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_pb2, run_service_pb2, run_service_pb2_grpc
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.service.auth.caller import TENANT_METADATA, current
from dramaturg.service.contract import Contract
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import until
from gateway.judges.registry import open_registry
from gateway.runs.datasets import DatasetAccess
from gateway.runs.records import NewRun
from gateway.runs.servicer import RunServicer
from gateway.runs.store import RunStore, open_store
from gateway.settings import JudgeEntry
from tests.gateway.runs.service.conftest import NotingEngine, fault, wanted
from tests.gateway.runs.service.test_runs import BY_RUN
from tests.support.auth import channel_of, holder, token_settings, write_tokens
from tests.support.engines import lines, open_runs, script_rows, scripts_spec
from tests.support.gateway import Fake, agents, all_pass

ALICE, BOB, VIEWER = holder("team-a", "operator"), holder("team-b", "operator"), holder("team-a", "viewer")


@dataclass
class Tenants:
    """RunService as two tenants have it, on one store."""

    alice: run_service_pb2_grpc.RunServiceAsyncStub
    bob: run_service_pb2_grpc.RunServiceAsyncStub
    viewer: run_service_pb2_grpc.RunServiceAsyncStub
    store: RunStore
    engine: NotingEngine


SAME = "8c6b8a4e-0000-4000-8000-000000000001"


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[Tenants]:
    store, engine = open_store(f"sqlite:///{tmp_path}/runs.sqlite3"), NotingEngine()
    async with open_registry([JudgeEntry(role="critic", name="strict", target="localhost:1")], 4) as registry:
        servicer = RunServicer(store, engine, registry, DatasetAccess([]))
        contract = Contract.make(
            run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
            run_service_pb2_grpc.add_RunServiceServicer_to_server,
            servicer,
            name="gateway",
            version="1.0.0",
            description="Runs.",
        )
        auth = token_settings(tmp_path, ALICE, BOB, VIEWER)
        async with (
            Server([contract], ServerSettings.loopback(drain_grace_seconds=0.2), auth) as server,
            channel_of(server.target, tmp_path, ALICE) as alice,
            channel_of(server.target, tmp_path, BOB) as bob,
            channel_of(server.target, tmp_path, VIEWER) as viewer,
        ):
            made = run_service_pb2_grpc.RunServiceStub
            yield Tenants(made(alice), made(bob), made(viewer), store, engine)
        servicer.close()
    store.close()


async def create(stub: run_service_pb2_grpc.RunServiceAsyncStub, request_id: str = "") -> str:
    request = pb.CreateRunRequest(spec=wanted(display_name="secret plans"), request_id=request_id)
    return str((await stub.CreateRun(request)).run.id)


@pytest.mark.parametrize("method", BY_RUN)
async def test_anothers_run_is_as_one_that_is_not_there(tenants: Tenants, method: str) -> None:
    run_id = await create(tenants.alice)
    before = tenants.store.runs.get(run_id)
    request = type(BY_RUN[method])()
    request.CopyFrom(BY_RUN[method])
    answers = []
    for asked in (run_id, "20260131-120000-0000000000"):
        if method in {"CompareRuns", "MeasureJudgeAgreement"}:
            request.run_ids[:] = [asked, "another"]
        else:
            request.run_id = asked
        error = await fault(getattr(tenants.bob, method)(request))
        answers.append((error.code, error.reason, error.message.replace(asked, ""), error.violations))
    assert answers[0] == answers[1]
    assert tenants.store.runs.get(run_id) == before


async def test_each_lists_its_own(tenants: Tenants) -> None:
    own, others = {await create(tenants.alice) for _ in range(3)}, {await create(tenants.bob)}

    async def listed(stub: run_service_pb2_grpc.RunServiceAsyncStub) -> set[str]:
        return {run.id for run in (await stub.ListRuns(pb.ListRunsRequest())).runs}

    assert await listed(tenants.alice) == await listed(tenants.viewer) == own
    assert await listed(tenants.bob) == others


async def test_a_page_token_of_one_shows_the_other_nothing(tenants: Tenants) -> None:
    for _ in range(3):
        await create(tenants.alice)
    page = await tenants.alice.ListRuns(pb.ListRunsRequest(page_size=1))
    stolen = pb.ListRunsRequest(page_size=1, page_token=page.next_page_token)
    assert not (await tenants.bob.ListRuns(stolen)).runs


async def test_a_request_id_is_each_tenants_own(tenants: Tenants) -> None:
    first = await create(tenants.alice, SAME)
    assert await create(tenants.bob, SAME) != first
    assert await create(tenants.alice, SAME) == first


async def test_nobody_chooses_a_tenant(tenants: Tenants) -> None:
    run_id = await create(tenants.alice)
    call = tenants.bob.GetRun(pb.GetRunRequest(run_id=run_id), metadata=[(TENANT_METADATA, "team-a")])
    assert (await fault(call)).code.name == "NOT_FOUND"


async def test_who_only_looks_changes_nothing(tenants: Tenants) -> None:
    run_id = await create(tenants.alice)
    for method in (
        "CancelRun",
        "DeleteRun",
        "PauseRun",
        "ResumeRun",
        "RerunSamples",
        "ExtendRun",
        "UpdateRun",
    ):
        request = type(BY_RUN[method])(run_id=run_id)
        assert (await fault(getattr(tenants.viewer, method)(request))).code.name == "PERMISSION_DENIED"
    assert (await tenants.viewer.GetRun(pb.GetRunRequest(run_id=run_id))).run.id == run_id


async def test_judges_are_asked_for_the_runs_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, seen = holder("", "service"), set()

    async def note(request: object) -> object:
        seen.add(current().tenant)
        return all_pass("critic")

    file = tmp_path / "own.token"
    file.write_text(service.token)
    monkeypatch.setenv("DRAMATURG_CHANNEL_TOKEN_FILE", str(file))
    write_tokens(tmp_path, service)
    async with AsyncExitStack() as stack:
        entries = []
        for fake in agents(Fake("critic", note)):
            settings = ServerSettings.loopback(drain_grace_seconds=0.2)
            server = Server([fake.contract()], settings, token_settings(tmp_path, service))
            target = (await stack.enter_async_context(server)).target
            entries.append(JudgeEntry(role=fake.role, name=fake.name, target=target))
        runs = await stack.enter_async_context(open_runs(f"sqlite:///{tmp_path}/runs.sqlite3", entries))
        for tenant in ("team-a", "team-b"):
            content = lines(script_rows(2))
            runs.store.runs.create(NewRun(id=tenant, tenant=tenant, spec=scripts_spec(), content=content))
            await runs.engine.submit(tenant)
            assert (await runs.ended(tenant)).state == run_pb2.RUN_STATE_SUCCEEDED
    assert seen == {"team-a", "team-b"}


async def test_reports_of_one_tenant_delay_neither_lists_nor_reports_of_another(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    reports: list[str] = []
    listed = tenants.store.samples.page

    def list_slowly(run_id: str, **options: Any) -> Any:
        reports.append(run_id)
        assert released.wait(60)
        return listed(run_id, **options)

    monkeypatch.setattr(tenants.store.samples, "page", list_slowly)
    many, one = await create(tenants.alice), await create(tenants.bob)

    async def report(stub: run_service_pb2_grpc.RunServiceAsyncStub, run_id: str, limit: int = 0) -> int:
        request = pb.GetReportRequest(run_id=run_id, sample_limit=limit)
        return sum([len(part.chunk) async for part in stub.GetReport(request)])

    # Each another report, so that none is kept.
    calls = [asyncio.create_task(report(tenants.alice, many, limit)) for limit in range(1, 101)]
    await until(lambda: bool(reports))
    async with asyncio.timeout(20):
        assert len((await tenants.bob.ListRuns(pb.ListRunsRequest())).runs) == 1
    found: list[str] = []
    find = tenants.store.runs.get

    def note(*given: Any) -> Any:
        found.append(given[0])
        return find(*given)

    monkeypatch.setattr(tenants.store.runs, "get", note)
    last = asyncio.create_task(report(tenants.bob, one))
    await until(lambda: one in found)
    released.set()
    assert await last > 1000
    # It overtook the others: each of its pieces waited for one turn of the other tenant at most.
    assert sum(call.done() for call in calls) < len(calls) / 2
    assert min(await asyncio.gather(*calls)) > 1000
