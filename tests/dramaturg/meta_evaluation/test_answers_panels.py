"""Panels that are asked about cases: their members get what a judge gets, and the rule decides."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.judge.roles import RUBRIC_JUDGE
from dramaturg.judge.verdicts import failed
from dramaturg.meta_evaluation.answers import PANEL_ROLES, CaseAnswer, Connections, ask_all
from dramaturg.meta_evaluation.cases import BenchSet
from dramaturg.meta_evaluation.material import Case
from dramaturg.meta_evaluation.variants import in_company
from dramaturg.service.channel import open_channel
from dramaturg.testing import FakeJudge, serve, serve_gateway
from tests.support.gateway import criteria_of

OPTIONS = JudgeOptions(model="small", repeat_index=3)


def cases_of(role: str) -> list[Case]:
    """The first case, the same with another candidate before it, and the last one of a role."""
    cases = [one for one in BenchSet().cases([role]) if isinstance(one.request, JudgeRequest)]
    return [cases[0], in_company(cases[:1])[0][1], cases[-1]]


def member(role: str, judge: Any = None) -> FakeJudge:
    return FakeJudge(judge, criteria=None if role == RUBRIC_JUDGE.name else criteria_of(role))


async def ask_panel(
    role: str, cases: Sequence[Case], rule: str, **members: FakeJudge
) -> Sequence[CaseAnswer]:
    async with AsyncExitStack() as stack:
        judges: list[dict[str, Any]] = []
        for name, one in members.items():
            server = await stack.enter_async_context(serve(one.contract()))
            judges.append({"role": role, "name": name, "target": server.target})
        panel = {"members": list(members), "rule": rule, "quorum": len(members)}
        judges.append({"role": role, "name": "panel", "panel": panel})
        gateway = await stack.enter_async_context(serve_gateway(judges=judges))
        channel = await stack.enter_async_context(open_channel(gateway.target))
        connections = Connections(channel, panel=JudgeSelection(role=role, judge="panel"))
        return await ask_all(cases, connections, OPTIONS, concurrency=1, timeout=30)


def judged(request: JudgeRequest) -> Any:
    """What a judge sees of a request, but for the words that introduce a definition."""
    candidates = [(one.id, one.text, [step.text for step in one.script.steps]) for one in request.candidates]
    scales = {one.id: one.scale.highest for one in request.criteria if one.HasField("scale")}
    defined = {one.id: one.definition.removeprefix("Pass: ") for one in request.criteria if one.definition}
    reference = [step.text for step in request.reference.steps]
    return request.task.goal, candidates, scales, defined, reference, request.options.SerializeToString()


@pytest.mark.parametrize("role", PANEL_ROLES)
async def test_a_member_of_a_panel_gets_what_a_judge_gets(role: str) -> None:
    cases = cases_of(role)
    voter, alone = member(role), member(role)
    answers = await ask_panel(role, cases, "majority", a=voter, b=member(role))
    assert [one.error for one in answers] == ["", "", ""]
    async with serve(alone.contract()) as server, open_channel(server.target) as channel:
        by_judge = await ask_all(cases, Connections(channel), OPTIONS, concurrency=1, timeout=30)
    assert [judged(one) for one in voter.requests] == [judged(one) for one in alone.requests]
    assert [one.judgements for one in answers] == [one.judgements for one in by_judge]


async def test_the_rule_of_the_panel_decides_and_prompts_are_those_of_members() -> None:
    def fails(request: JudgeRequest, candidate: object) -> Assessment:
        found = Assessment(verdicts=[failed(one.id, []) for one in request.criteria])
        found.provenance.prompts.add(name="critic", sha256="ab" * 32)
        found.provenance.completions.add(answered_model="large")
        return found

    members = {"lenient": member("critic"), "strict": member("critic", fails)}
    for rule, reported in (("any-fail", True), ("unanimous", None)):
        for one in await ask_panel("critic", cases_of("critic"), rule, **members):
            assert {item.reported for item in one.judgements} == {reported}
            assert [prompt.name for prompt in one.provenance.prompts] == ["strict/critic"]
            assert [call.answered_model for call in one.provenance.completions] == ["large"]


async def test_a_gateway_that_refuses_is_an_error_of_the_case() -> None:
    async with serve_gateway(judges=[]) as gateway, open_channel(gateway.target) as channel:
        connections = Connections(channel, panel=JudgeSelection(role="critic", judge="panel"))
        (one,) = await ask_all(cases_of("critic")[:1], connections, OPTIONS, concurrency=1, timeout=30)
    assert one.error.startswith("INVALID_ARGUMENT")
    assert {item.reported for item in one.judgements} == {None}
