from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.dialogues_pb2 import ModelPair
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_FAILED,
    RUN_STATE_PARTIAL,
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    Dataset,
    DialoguesRunOptions,
    PairsRunOptions,
    RunBudget,
    RunLimits,
    RunPolicy,
    RunSpec,
    RunState,
)
from dramaturg.database import StoreError
from gateway.runs.records import Incident
from gateway.runs.service import pages
from gateway.runs.service.results import ONE_LOOK
from tests.gateway.runs.service.conftest import Service, fault, wanted
from tests.support.runs import TIMED_OUT, failed, judged, spec

REQUEST_ID = "8c6b8a4e-0000-4000-8000-000000000001"


async def test_a_run_is_created_and_handed_to_the_engine(service: Service) -> None:
    asked = wanted(display_name="first", labels={"team": "x"}, models=["m"])
    run = (await service.stub.CreateRun(pb.CreateRunRequest(spec=asked))).run
    assert service.engine.submitted == [run.id]
    assert run.state == RUN_STATE_PREPARING
    assert run.attempt == 1
    assert run.created_by_version
    assert run.create_time.seconds > 0
    assert not run.HasField("end_time")
    # The rows are kept, and not sent back with every run.
    assert service.store.runs.content(run.id) == b"{}\n"
    assert run.spec.dataset.WhichOneof("source") == "content"
    assert run.spec.dataset.content == b""
    asked.dataset.content = b""
    assert run.spec == asked
    assert (await service.stub.GetRun(pb.GetRunRequest(run_id=run.id))).run == run


@pytest.mark.parametrize("request_id", ["q", "8c6b8a4e-0000-1000-8000-000000000001", "8c6b8a4e"])
async def test_a_request_id_is_a_uuid4(service: Service, request_id: str) -> None:
    error = await fault(service.stub.CreateRun(pb.CreateRunRequest(spec=wanted(), request_id=request_id)))
    assert [(one.field, one.reason) for one in error.violations] == [("request_id", "PATTERN_MISMATCH")]


async def test_a_page_size_above_the_maximum_is_the_maximum(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE", 2)
    monkeypatch.setattr(pages.page_size, "__defaults__", (2,))
    for index in range(3):
        service.run(RUN_STATE_RUNNING, f"run-{index}", samples=3)
    page = await service.stub.ListRuns(pb.ListRunsRequest(page_size=4_000_000_000))
    assert len(page.runs) == 2
    assert page.next_page_token
    listed = await service.stub.ListSamples(pb.ListSamplesRequest(run_id="run-0", page_size=1_000_000))
    assert len(listed.samples) == 2


async def test_a_second_call_with_the_request_id_finds_the_run(service: Service) -> None:
    request = pb.CreateRunRequest(spec=wanted(), request_id=REQUEST_ID)
    first = (await service.stub.CreateRun(request)).run
    second = (await service.stub.CreateRun(request)).run
    assert first.id == second.id
    request.spec.models.append("m")
    error = await fault(service.stub.CreateRun(request))
    assert error.code is grpc.StatusCode.ALREADY_EXISTS
    assert error.reason == error_reason_pb2.ERROR_REASON_REQUEST_ID_REUSED
    assert error.metadata == {"request_id": REQUEST_ID}


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("spec.dataset", RunSpec(dataset=None)),
        ("spec.evaluation", RunSpec(dataset=Dataset(content=b"x"))),
        ("spec.dataset", wanted(dataset=Dataset(row_limit=1))),
        ("spec.dataset.uri", wanted(dataset=Dataset(uri="/etc/passwd"))),
        ("spec.models[1]", wanted(models=["m", "m"])),
        ("spec.models[0]", wanted(models=["  "])),
        ("spec.models", wanted(pairs=PairsRunOptions(), models=["m"])),
        ("spec.judges[0].role", wanted(judges=[JudgeSelection(role="pair-judge")])),
        ("spec.judges[0].judge", wanted(judges=[JudgeSelection(role="critic", judge="lenient")])),
        ("spec.judges[1]", wanted(judges=[JudgeSelection(role="critic", judge="strict")] * 2)),
        ("spec.policy.max_failed_fraction", wanted(policy=RunPolicy(max_failed_fraction=1.5))),
        ("spec.limits.priority", wanted(limits=RunLimits(priority=101))),
        (
            "spec.dialogues.pairs[0]",
            wanted(dialogues=DialoguesRunOptions(pairs=[ModelPair(first_model="a", second_model="a")])),
        ),
    ],
)
async def test_a_spec_that_cannot_be_is_refused_by_its_field(
    service: Service, field: str, asked: RunSpec
) -> None:
    error = await fault(service.stub.CreateRun(pb.CreateRunRequest(spec=asked)))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.violations[0].field == field
    assert service.engine.submitted == []
    assert not service.store.runs.page("", limit=9)


async def test_a_timeout_of_nothing_is_refused(service: Service) -> None:
    asked = wanted()
    asked.policy.sample_timeout.SetInParent()
    error = await fault(service.stub.CreateRun(pb.CreateRunRequest(spec=asked)))
    assert error.violations[0].field == "spec.policy.sample_timeout"


async def test_a_judge_that_is_registered_may_be_named(service: Service) -> None:
    asked = wanted(judges=[JudgeSelection(role="critic", judge="strict", model=m) for m in ("a", "b")])
    run = (await service.stub.CreateRun(pb.CreateRunRequest(spec=asked))).run
    assert list(run.spec.judges) == list(asked.judges)


BY_RUN: Mapping[str, Any] = {
    "GetRun": pb.GetRunRequest(run_id="run"),
    "UpdateRun": pb.UpdateRunRequest(run_id="run"),
    "PauseRun": pb.PauseRunRequest(run_id="run"),
    "ResumeRun": pb.ResumeRunRequest(run_id="run"),
    "CancelRun": pb.CancelRunRequest(run_id="run"),
    "RerunSamples": pb.RerunSamplesRequest(run_id="run"),
    "ExtendRun": pb.ExtendRunRequest(run_id="run", models=["m"]),
    "DeleteRun": pb.DeleteRunRequest(run_id="run"),
    "WatchRun": pb.WatchRunRequest(run_id="run"),
    "ListSamples": pb.ListSamplesRequest(run_id="run"),
    "ListResults": pb.ListResultsRequest(run_id="run"),
    "GetSummary": pb.GetSummaryRequest(run_id="run"),
    "CompareRuns": pb.CompareRunsRequest(run_ids=["run", "other"]),
    "MeasureJudgeAgreement": pb.MeasureJudgeAgreementRequest(run_ids=["run"]),
    "GetLeaderboard": pb.GetLeaderboardRequest(run_id="run"),
    "ExportResults": pb.ExportResultsRequest(run_id="run"),
    "GetReport": pb.GetReportRequest(run_id="run"),
}


def test_every_method_is_looked_at() -> None:
    methods = {method.name for method in pb.DESCRIPTOR.services_by_name["RunService"].methods}
    assert methods == {*BY_RUN, "CreateRun", "ListRuns"}


@pytest.mark.parametrize("method", BY_RUN)
async def test_nobody_is_told_of_another_tenants_run(
    service: Service, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = getattr(service.stub, method)
    nobody = await fault(call(BY_RUN[method]))
    service.run(RUN_STATE_SUCCEEDED, tenant="somebody")
    somebodys = await fault(call(BY_RUN[method]))
    for error in (nobody, somebodys):
        assert error.code is grpc.StatusCode.NOT_FOUND
        assert error.reason == error_reason_pb2.ERROR_REASON_RESOURCE_NOT_FOUND
        assert error.metadata == {"name": "run"}
    assert nobody.message == somebodys.message
    assert service.kept().attempt == 1
    assert not (await service.stub.ListRuns(pb.ListRunsRequest())).runs


async def test_figures_of_a_run_that_goes_on_are_for_one_look(service: Service) -> None:
    for state, expected in ((RUN_STATE_RUNNING, True), (RUN_STATE_SUCCEEDED, False)):
        service.run(state, f"in-{state}")
        found = await service.stub.GetSummary(pb.GetSummaryRequest(run_id=f"in-{state}"))
        assert found.final is not expected
        assert (ONE_LOOK in found.summary.notices) is expected


ACTIVE = (RUN_STATE_PREPARING, RUN_STATE_RUNNING, RUN_STATE_PAUSED)
ENDED = (RUN_STATE_SUCCEEDED, RUN_STATE_PARTIAL, RUN_STATE_FAILED, RUN_STATE_CANCELLED)


@pytest.mark.parametrize(
    ("method", "fitting", "after"),
    [
        ("PauseRun", (RUN_STATE_RUNNING, RUN_STATE_PAUSED), RUN_STATE_PAUSED),
        ("ResumeRun", (RUN_STATE_PAUSED, RUN_STATE_RUNNING), RUN_STATE_RUNNING),
        ("CancelRun", (*ACTIVE, RUN_STATE_CANCELLED), RUN_STATE_CANCELLED),
        ("RerunSamples", ENDED, RUN_STATE_RUNNING),
        ("ExtendRun", ENDED, RUN_STATE_RUNNING),
        ("DeleteRun", ENDED, None),
    ],
)
async def test_what_a_state_allows(
    service: Service, method: str, fitting: tuple[int, ...], after: int | None
) -> None:
    for state in (*ACTIVE, *ENDED):
        name = f"in-{state}"
        service.run(state, name)
        request = type(BY_RUN[method])()
        request.CopyFrom(BY_RUN[method])
        request.run_id = name
        call = getattr(service.stub, method)(request)
        if state not in fitting:
            error = await fault(call)
            assert error.code is grpc.StatusCode.FAILED_PRECONDITION
            assert error.reason == error_reason_pb2.ERROR_REASON_RUN_STATE
            shown = RunState.Name(state).removeprefix("RUN_STATE_")
            assert error.metadata == {"run_id": name, "state": shown}
            assert service.kept(name).state == state
        else:
            await call
            kept = service.store.runs.get(name)
            assert (kept and kept.state) == after


async def test_the_engine_is_told_of_what_changed(service: Service) -> None:
    service.run(RUN_STATE_RUNNING)
    await service.stub.PauseRun(BY_RUN["PauseRun"])
    await service.stub.PauseRun(BY_RUN["PauseRun"])  # a second time nothing changes
    await service.stub.UpdateRun(BY_RUN["UpdateRun"])
    await service.stub.CancelRun(BY_RUN["CancelRun"])
    assert service.notifier.notified == ["run"] * 3
    await service.stub.RerunSamples(BY_RUN["RerunSamples"])
    assert service.engine.submitted == ["run"]


async def test_limits_and_budget_change_whatever_the_state(service: Service) -> None:
    asked = spec(limits=RunLimits(priority=4, max_concurrent_samples=3), budget=RunBudget(max_cost_usd=1))
    service.run(RUN_STATE_PARTIAL, spec=asked)
    request = pb.UpdateRunRequest(run_id="run", budget=RunBudget(max_cost_usd=2, max_token_count=9))
    run = (await service.stub.UpdateRun(request)).run
    assert run.spec.limits == asked.limits
    assert run.spec.budget == request.budget
    assert run.state == RUN_STATE_PARTIAL
    cleared = FieldMask(paths=["limits"])
    request = pb.UpdateRunRequest(run_id="run", update_mask=cleared)
    run = (await service.stub.UpdateRun(request)).run
    assert run.spec.limits == RunLimits()
    assert run.spec.budget == RunBudget(max_cost_usd=2, max_token_count=9)


async def test_an_update_names_an_unknown_field(service: Service) -> None:
    service.run(RUN_STATE_RUNNING)
    mask = FieldMask(paths=["budget.max_cost_usd", "budget.max_cost", "spec.seed"])
    error = await fault(service.stub.UpdateRun(pb.UpdateRunRequest(run_id="run", update_mask=mask)))
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT
    assert [one.field for one in error.violations] == ["update_mask", "update_mask"]
    assert "'budget.max_cost'" in error.violations[0].description
    assert "'spec.seed'" in error.violations[1].description
    assert service.kept().spec == spec()


async def test_a_rerun_is_of_its_scope_and_may_be_fresh(service: Service) -> None:
    service.run(RUN_STATE_RUNNING)
    service.store.attempts.finish(
        "run", 1, [judged(0, {"m": [True]}), judged(1, {"m": [TIMED_OUT]}), failed(2)]
    )
    await service.stub.CancelRun(BY_RUN["CancelRun"])
    request = pb.RerunSamplesRequest(run_id="run", scope=pb.RERUN_SCOPE_FAILED, fresh=True)
    run = (await service.stub.RerunSamples(request)).run
    assert (run.attempt, run.progress.succeeded_count, run.progress.failed_count) == (2, 2, 0)
    assert not run.HasField("end_time")
    assert service.kept().repeat_offset == 1


async def test_a_run_is_extended_by_models_that_it_has_not(service: Service) -> None:
    service.run(RUN_STATE_SUCCEEDED, spec=wanted(models=["a", "b"]))
    request = pb.ExtendRunRequest(run_id="run", models=["b"])
    run = (await service.stub.ExtendRun(request)).run
    assert (run.attempt, run.state) == (1, RUN_STATE_SUCCEEDED)
    request.models.append("c")
    run = (await service.stub.ExtendRun(request)).run
    assert (run.attempt, list(run.spec.models)) == (2, ["a", "b", "c"])
    assert service.engine.submitted == ["run"]


@pytest.mark.parametrize(
    ("asked", "models", "field"),
    [
        (wanted(pairs=PairsRunOptions()), ["m"], "models"),
        (wanted(), ["m", "m"], "models[1]"),
        (wanted(models=[f"m{i}" for i in range(99)]), ["x", "y"], "models"),
    ],
)
async def test_models_that_a_run_cannot_have_are_refused(
    service: Service, asked: RunSpec, models: list[str], field: str
) -> None:
    service.run(RUN_STATE_SUCCEEDED, spec=asked)
    error = await fault(service.stub.ExtendRun(pb.ExtendRunRequest(run_id="run", models=models)))
    assert error.violations[0].field == field
    assert service.kept().attempt == 1


async def test_runs_are_listed_by_their_ids(service: Service) -> None:
    ids = ["r0", "r1", "r2"]
    for run_id in ids:
        service.run(RUN_STATE_RUNNING, run_id)
    listed = await service.stub.ListRuns(pb.ListRunsRequest(run_ids=[ids[2], ids[0], "none", "\x00"]))
    assert [run.id for run in listed.runs] == [ids[2], ids[0]]
    page = await service.stub.ListRuns(pb.ListRunsRequest(run_ids=ids[:2], page_size=1))
    assert [run.id for run in page.runs] == [ids[1]]
    other = pb.ListRunsRequest(run_ids=ids, page_size=1, page_token=page.next_page_token)
    with pytest.raises(grpc.aio.AioRpcError, match="page_token"):
        await service.stub.ListRuns(other)


async def test_runs_are_listed_page_by_page(service: Service) -> None:
    for index in range(5):
        service.run(RUN_STATE_RUNNING, f"r{index}", spec=wanted(labels={"odd": str(index % 2)}))
    request = pb.ListRunsRequest(page_size=2)
    seen: list[str] = []
    while True:
        page = await service.stub.ListRuns(request)
        seen += [run.id for run in page.runs]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert seen == ["r4", "r3", "r2", "r1", "r0"]
    odd = await service.stub.ListRuns(pb.ListRunsRequest(labels={"odd": "1"}, states=[RUN_STATE_RUNNING]))
    assert [run.id for run in odd.runs] == ["r3", "r1"]
    assert not odd.next_page_token


async def test_how_far_a_run_is(service: Service) -> None:
    service.run(RUN_STATE_RUNNING, samples=10)
    service.store.samples.take("run", [0, 1, 2, 3], "g")
    service.store.attempts.finish("run", 1, [judged(0, {"m": [True, TIMED_OUT]}), failed(1)])
    progress = (await service.stub.GetRun(pb.GetRunRequest(run_id="run"))).run.progress
    assert (progress.sample_count, progress.succeeded_count, progress.failed_count) == (10, 1, 1)
    assert (progress.running_count, progress.judgement_count, progress.abstention_count) == (2, 2, 1)
    assert dict(progress.abstentions_by_reason) == {"TIMED_OUT": 1}
    assert progress.usage.prompt_token_count == 6
    assert progress.samples_per_second > 0
    left = progress.remaining_time.ToTimedelta().total_seconds()
    assert left == pytest.approx(8 / progress.samples_per_second, rel=0.01)


@pytest.mark.parametrize("state", [RUN_STATE_PAUSED, RUN_STATE_SUCCEEDED])
async def test_a_run_that_does_not_move_has_no_rate_and_no_remaining_time(
    state: run_pb2.RunState.ValueType, service: Service
) -> None:
    service.run(RUN_STATE_RUNNING, samples=10)
    service.store.attempts.finish("run", 1, [judged(0, {"m": [True]})])
    moving = (await service.stub.GetRun(pb.GetRunRequest(run_id="run"))).run.progress
    assert {"samples_per_second", "remaining_time", "last_advance_time"} <= _set(moving)
    service.store.runs.report_incident("run", 1, Incident("the judge is down", 3, 10.0, None))
    troubled = (await service.stub.GetRun(pb.GetRunRequest(run_id="run"))).run.progress
    assert {"samples_per_second", "incident"} <= _set(troubled)
    assert not troubled.HasField("remaining_time")
    service.store.runs.change_state("run", state, expected=[RUN_STATE_RUNNING])
    for still in (
        (await service.stub.GetRun(pb.GetRunRequest(run_id="run"))).run,
        *(await service.stub.ListRuns(pb.ListRunsRequest())).runs,
    ):
        assert not {"samples_per_second", "remaining_time", "last_advance_time"} & _set(still.progress)


def _set(message: Message) -> set[str]:
    return {field.name for field, _ in message.ListFields()}


async def test_a_name_that_no_database_keeps_is_nobodys(service: Service) -> None:
    error = await fault(service.stub.GetRun(pb.GetRunRequest(run_id="run\0")))
    assert error.code is grpc.StatusCode.NOT_FOUND


async def test_a_store_that_is_gone_is_unavailable_and_not_described(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: object) -> None:
        raise StoreError("the store of runs postgresql://host/secret cannot be used")

    monkeypatch.setattr(service.store.runs, "get", gone)
    error = await fault(service.stub.GetRun(pb.GetRunRequest(run_id="run")))
    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert error.reason == error_reason_pb2.ERROR_REASON_STORE_UNAVAILABLE
    assert error.retry_after is not None
    assert "secret" not in error.message
