"""Panels in the directory, as callers of a gateway see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pydantic import ValidationError

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import PANEL_RULE_UNANIMOUS, JudgeHealth
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits, RunSample, RunSpec
from dramaturg.client import DramaturgClient
from dramaturg.judge.roles import CRITIC
from dramaturg.judge.verdicts import failed, passed
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import SettingsError
from dramaturg.testing import serve, serve_gateway
from gateway.evaluations.kinds import run_kind
from gateway.judges.registry import open_registry
from gateway.judges.selection import select_judges
from gateway.settings import GatewaySettings, JudgeEntry, PanelTable
from tests.support.engines import judges_of, open_runs, script_rows, scripts_spec
from tests.support.gateway import Fake, all_pass, criteria_of, evaluate_result, scripts_request

OTHERS = [Fake(role) for role in ("synthesize", "execute", "commonsense")]


async def fail(request: Any) -> Assessment:
    return Assessment(verdicts=[failed(criterion, rationale="No.") for criterion in criteria_of("critic")])


@asynccontextmanager
async def gateway_with(*critics: Fake, **panel: Any) -> AsyncIterator[DramaturgClient]:
    """A gateway with critics and the panel "trio", the default."""
    async with AsyncExitStack() as stack:
        entries: list[dict[str, Any]] = []
        for fake in (*critics, *OTHERS):
            target = fake.target or (await stack.enter_async_context(serve(fake.contract()))).target
            entries.append({"role": fake.role, "name": fake.name, "target": target})
        entries.append({"role": "critic", "name": "trio", "panel": panel, "default": True})
        gateway = await stack.enter_async_context(serve_gateway(judges=entries))
        yield await stack.enter_async_context(DramaturgClient(gateway.target))


async def test_a_panel_is_selected_like_a_judge_and_says_who_voted() -> None:
    critics = [Fake("critic", name="a"), Fake("critic", fail, name="b"), Fake("critic", name="c")]
    async with gateway_with(*critics, members=["a", "b", "c"]) as client:
        by_default = await evaluate_result(client, scripts_request(1))
        named = await evaluate_result(
            client, scripts_request(1, judges=[JudgeSelection(role="critic", judge="trio")])
        )
        alone = await evaluate_result(
            client, scripts_request(1, judges=[JudgeSelection(role="critic", judge="b")])
        )
        (listed,) = [judge for judge in await client.list_judges("critic") if judge.name == "trio"]
    for result in (by_default, named):
        candidate = result.candidates[0]
        verdict = candidate.verdicts[0]
        assert verdict.outcome == verdict_pb2.OUTCOME_PASS
        assert verdict.rationale == "Panel 'trio' (majority): a PASS, b FAIL, c PASS."
        assert [(vote.judge, vote.outcome) for vote in verdict.votes] == [
            ("a", verdict_pb2.OUTCOME_PASS),
            ("b", verdict_pb2.OUTCOME_FAIL),
            ("c", verdict_pb2.OUTCOME_PASS),
        ]
        voted = [(one.judge, one.panel) for one in candidate.assessments if one.role == "critic"]
        assert voted == [("a", "trio"), ("b", "trio"), ("c", "trio")]
        (row,) = [
            row for row in flatten(run_pb2.RunSample(scripts=result)) if row.measure == verdict.criterion
        ]
        assert (row.role, row.judge) == ("critic", "trio")
    assert alone.candidates[0].verdicts[0].outcome == verdict_pb2.OUTCOME_FAIL
    assert not alone.candidates[0].verdicts[0].votes
    assert (listed.health, listed.default_for_role) == (JudgeHealth.JUDGE_HEALTH_SERVING, True)
    assert [member.judge for member in listed.panel.members] == ["a", "b", "c"]
    assert listed.panel.quorum == 2


async def test_a_panel_serves_while_its_quorum_does() -> None:
    gone: dict[str, Any] = {"target": "127.0.0.1:1"}
    critics = [Fake("critic", name="a"), Fake("critic", name="b", **gone), Fake("critic", name="c", **gone)]
    async with gateway_with(*critics, members=["a", "b", "c"], rule="unanimous") as client:
        panel = await client.check_judge("critic", "trio")
        assert panel.health == JudgeHealth.JUDGE_HEALTH_NOT_SERVING
        assert panel.error == ("1 of 3 members serve, the quorum is 2: b UNREACHABLE, c UNREACHABLE")
        assert panel.panel.rule == PANEL_RULE_UNANIMOUS
        verdict = (await evaluate_result(client, scripts_request(1))).candidates[0].verdicts[0]
    assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
    assert verdict.rationale.endswith("1 of 3 voted; the quorum is 2.")


async def test_a_member_killed_in_mid_run_leaves_every_sample_with_a_verdict(sqlite_url: str) -> None:
    """Acceptance: by quorum, and each says who voted."""
    answered = asyncio.Event()
    count = 0

    async def noting(request: Any) -> Assessment:
        nonlocal count
        count += 1
        if count >= 5:
            answered.set()
        await asyncio.sleep(0.02)  # the run outlasts the member
        return all_pass("critic")

    async with AsyncExitStack() as stack:
        entries = await stack.enter_async_context(
            judges_of([Fake("critic", noting, name="a"), Fake("critic", name="b"), *OTHERS])
        )
        doomed = AsyncExitStack()
        server = await doomed.enter_async_context(
            serve(Fake("critic", name="c").contract(), drain_grace_seconds=0)
        )
        entries += [
            JudgeEntry(role="critic", name="c", target=server.target),
            JudgeEntry.model_validate(
                {"role": "critic", "name": "trio", "default": True, "panel": {"members": ["a", "b", "c"]}}
            ),
        ]
        # The outage of a judge would be waited for if the panel did not decide.
        runs = await stack.enter_async_context(open_runs(sqlite_url, entries, outage_timeout_seconds=600))
        spec = scripts_spec(limits=RunLimits(max_concurrent_samples=2))
        run_id = await runs.create(spec, script_rows(30))
        await answered.wait()
        await doomed.aclose()
        run = await runs.ended(run_id)
        samples = runs.samples(run_id)
    assert (run.outcome, run.counts.succeeded, run.counts.coverage) == (run_pb2.RUN_OUTCOME_JUDGED, 30, 1)
    voters = []
    for sample in samples:
        verdict = sample.scripts.candidates[0].verdicts[0]
        assert verdict.outcome == verdict_pb2.OUTCOME_PASS
        voters.append(tuple(vote.judge for vote in verdict.votes if not vote.abstain_reason))
    assert set(voters) == {("a", "b", "c"), ("a", "b")}
    assert all(sample.attempt_count == 1 for sample in samples)


@pytest.mark.parametrize(
    ("judges", "fault"),
    [
        ([{"role": "critic", "name": "p", "panel": {"members": ["a", "z"]}}], "critic=p: z"),
        ([{"role": "author", "name": "p", "panel": {"members": ["a", "z"]}}], "a role without panels: p"),
        (
            [
                {"role": "critic", "name": "p", "panel": {"members": ["a", "b"]}},
                {"role": "critic", "name": "q", "panel": {"members": ["a", "p"]}},
            ],
            "critic=q: p",
        ),
        (
            [{"role": "critic", "name": "p", "target": "x:1", "panel": {"members": ["a", "b"]}}],
            "has no target",
        ),
        ([{"role": "critic", "name": "p"}], "has no target"),
        ([{"role": "critic", "name": "p", "target": "127.0.0.1:99999"}], "use HOST:PORT"),
        ([{"role": "critic", "name": "p", "target": "localhost"}], "use HOST:PORT"),
        ([{"role": "critic", "name": "p", "target": "http://localhost:1"}], "use HOST:PORT"),
    ],
)
def test_panels_of_other_members_are_refused(judges: list[dict[str, Any]], fault: str) -> None:
    servers = [{"role": "critic", "name": name, "target": "x:1"} for name in ("a", "b")]
    with pytest.raises(ValueError, match=fault):
        GatewaySettings.model_validate({"judges": [*servers, *judges]}).check_members()


async def test_a_panel_whose_member_is_absent_is_refused_and_names_it() -> None:
    member = JudgeEntry(role="critic", name="a", target="127.0.0.1:1")
    panel = {"role": "critic", "name": "p", "panel": {"members": ["a", "gone"]}}
    async with open_registry([member], calls_per_judge=1) as registry:
        registry.register([("", JudgeEntry.model_validate(panel))], {})
        with pytest.raises(ServiceError, match="a member is 'gone'") as unknown:
            select_judges([JudgeSelection(role="critic", judge="p")], [CRITIC], registry, "")
    assert unknown.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN


async def test_a_gateway_with_a_panel_of_no_judges_does_not_start() -> None:
    with pytest.raises(SettingsError, match="critic=p: z"):
        async with serve_gateway(
            judges=[
                {"role": "critic", "name": "a", "target": "127.0.0.1:1"},
                {"role": "critic", "name": "p", "panel": {"members": ["a", "z"]}},
            ]
        ):
            raise AssertionError


@dataclass
class Stage:
    """A critic that is as confident as a function says, and keeps what it is asked about."""

    name: str
    outcome: Callable[..., Verdict]
    confidence: Callable[[str, str], float | None]
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: Any) -> Assessment:
        candidate = request.candidate.id
        self.asked.append(candidate)
        verdicts = [
            self.outcome(criterion, confidence=self.confidence(candidate, criterion), rationale=self.name)
            for criterion in criteria_of("critic")
        ]
        return Assessment(verdicts=verdicts)

    @property
    def fake(self) -> Fake:
        return Fake("critic", self.answer, name=self.name)


async def test_a_later_stage_of_a_cascade_is_asked_only_where_no_verdict_stands() -> None:
    first, second, third = criteria_of("critic")
    request = scripts_request(3)
    sure, half, lost = (one.id for one in request.candidates)
    small = Stage(
        "small", passed, lambda candidate, name: 0.95 if candidate == sure or name == first else 0.5
    )
    # Of the candidate "half" it settles what is open.
    middle = Stage(
        "middle", failed, lambda candidate, name: 0.8 if candidate == half and name != first else None
    )
    large = Stage("large", failed, lambda candidate, name: None)
    members = [{"judge": "small", "threshold": 0.9}, {"judge": "middle", "threshold": 0.7}, "large"]
    fakes = [one.fake for one in (small, middle, large)]
    async with gateway_with(*fakes, members=members, rule="cascade") as client:
        result = await evaluate_result(client, request)
        (listed,) = [one for one in await client.list_judges("critic") if one.name == "trio"]
    assert (small.asked, middle.asked, large.asked) == ([sure, half, lost], [half, lost], [lost])
    votes = {
        (one.candidate_id, verdict.criterion): [vote.judge for vote in verdict.votes]
        for one in result.candidates
        for verdict in one.verdicts
        if verdict.criterion in {first, second, third}
    }
    decided = {sure: ["small"], half: ["small", "middle"], lost: ["small", "middle", "large"]}
    for (candidate, criterion), judges in votes.items():
        assert judges == (["small"] if criterion == first else decided[candidate])
    by_id = {one.candidate_id: one for one in result.candidates}
    asked = {
        name: [one.judge for one in found.assessments if one.role == "critic"]
        for name, found in by_id.items()
    }
    assert asked == decided
    verdict = next(one for one in by_id[half].verdicts if one.criterion == second)
    assert verdict.outcome == verdict_pb2.OUTCOME_FAIL
    assert verdict.rationale == (
        "Panel 'trio' (cascade): small PASS (0.50 for 0.9), middle FAIL (0.80 for 0.7). middle"
    )
    assert listed.panel.quorum == 0
    assert [one.threshold for one in listed.panel.members] == [0.9, 0.7, 0]
    rows = [row for row in flatten(RunSample(scripts=result)) if row.measure == second]
    assert {row.judge for row in rows} == {"trio"}


async def test_an_estimate_counts_every_stage_for_every_candidate() -> None:
    entries = [
        JudgeEntry(role=role, name=name, target="127.0.0.1:1")
        for role, name in (("critic", "a"), ("critic", "b"), *((one.role, one.name) for one in OTHERS))
    ]
    table = {"rule": "cascade", "members": [{"judge": "a", "threshold": 0.5}, "b"]}
    cascade = JudgeEntry.model_validate({"role": "critic", "name": "p", "panel": table})
    async with open_registry(entries, calls_per_judge=1) as registry:
        registry.register([("", cascade)], {})
        request = scripts_request(3, judges=[JudgeSelection(role="critic", judge="p")])
        context: Any = SimpleNamespace(registry=registry)
        calls = run_kind(scripts_spec()).planned_calls(request, RunSpec(), context)
    found = {one.judge.name: one.call_count for one in calls if one.judge.role is CRITIC}
    assert found == {"a": 3, "b": 3}
    told = {one.assumption for one in calls if one.judge.role is CRITIC}
    assert told == {"every stage of the cascade p is asked about everything, which is the most"}


async def test_a_stage_that_fails_hands_over() -> None:
    async def broken(request: Any) -> Assessment:
        raise ServiceError(
            grpc.StatusCode.INVALID_ARGUMENT, error_reason_pb2.ERROR_REASON_FIELD_INVALID, "no"
        )

    large = Stage("large", failed, lambda candidate, name: None)
    members = [{"judge": "small", "threshold": 0.9}, "large"]
    fakes = [Fake("critic", broken, name="small"), large.fake]
    async with gateway_with(*fakes, members=members, rule="cascade") as client:
        result = await evaluate_result(client, scripts_request(2))
    assert len(large.asked) == 2
    for one in result.candidates:
        verdict = next(each for each in one.verdicts if each.criterion == criteria_of("critic")[0])
        assert [vote.judge for vote in verdict.votes] == ["small", "large"]
        assert verdict.outcome == verdict_pb2.OUTCOME_FAIL


@pytest.mark.parametrize(
    ("panel", "problem"),
    [
        ({"rule": "cascade", "members": ["a", "b"]}, "threshold of every member but the last"),
        (
            {
                "rule": "cascade",
                "members": [{"judge": "a", "threshold": 0.5}, {"judge": "b", "threshold": 1}],
            },
            "threshold of every member but the last",
        ),
        ({"members": [{"judge": "a", "threshold": 0.5}, "b"]}, "has thresholds"),
        (
            {"rule": "cascade", "members": [{"judge": "a", "threshold": 0.5}, "b"], "quorum": 1},
            "has a quorum",
        ),
    ],
)
def test_a_cascade_has_thresholds_and_no_quorum(panel: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        PanelTable.model_validate(panel)
