"""Panels in the directory, as callers of a gateway see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import PANEL_RULE_UNANIMOUS, JudgeHealth
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits
from dramaturg.client import DramaturgClient
from dramaturg.judge.roles import CRITIC
from dramaturg.judge.verdicts import failed
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import SettingsError
from dramaturg.testing import serve, serve_gateway
from gateway.judges.registry import open_registry
from gateway.judges.selection import select_judges
from gateway.settings import GatewaySettings, JudgeEntry
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
