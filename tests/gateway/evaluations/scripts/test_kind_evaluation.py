from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.api.evaluation.v1 import scripts_pb2 as pb
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.protocols import USES_POOL, USES_REFERENCE
from dramaturg.judge.verdicts import failed, passed
from dramaturg.service.errors import ServiceError
from tests.support.gateway import (
    CALL,
    GOLD_STEPS,
    Asked,
    Fake,
    agents,
    all_pass,
    evaluate,
    evaluate_result,
    gateway_client,
    scripts_request,
    steps,
)


class Listener:
    """Passes everything and remembers what it was asked."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.requests: list[Any] = []
        self.asked: list[Asked] = []

    async def __call__(self, request: Any) -> Any:
        if isinstance(request, Asked):
            self.asked.append(request)
            if request.request not in self.requests:
                self.requests.append(request.request)
        else:
            self.requests.append(request)
        return (
            SynthesizeResponse(script=steps(*GOLD_STEPS))
            if self.role == "synthesize"
            else all_pass(self.role)
        )


def texts(script: Any) -> tuple[str, ...]:
    return tuple(step.text for step in script.steps)


async def test_the_stream_says_accepted_then_what_comes_then_the_result() -> None:
    async with gateway_client(*agents()) as client:
        events = await evaluate(client, scripts_request(2, tags={"level": "hard"}))
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "accepted"
    assert kinds[-1] == "result"
    assert sorted(map(str, kinds[1:-1])) == ["assessment"] * 6 + ["gold_answer"]
    accepted = events[0].accepted
    assert accepted.assessment_count == 6
    assert [judge.role for judge in accepted.judges] == ["synthesize", "critic", "execute", "commonsense"]
    assert {judge.judge for judge in accepted.judges} == {"fake"}


async def test_a_result_has_every_verdict_in_the_papers_order_and_says_where_it_comes_from() -> None:
    async with gateway_client(*agents()) as client:
        result = await evaluate_result(client, scripts_request(2, tags={"level": "hard"}))
    assert result.task.id == "t1"
    assert dict(result.tags) == {"level": "hard"}
    assert result.mechanism == pb.MECHANISM_AGENTS
    assert [(one.candidate_id, one.model) for one in result.candidates] == [
        ("c0", "model-0"),
        ("c1", "model-1"),
    ]
    for candidate in result.candidates:
        assert tuple(verdict.criterion for verdict in candidate.verdicts) == ABSEVAL
        assert [one.role for one in candidate.assessments] == ["critic", "execute", "commonsense"]
        assert {one.assessment.provenance.registered_name for one in candidate.assessments} == {"fake"}
        assert candidate.reading == verdict_pb2.READING_STEPS
    assert texts(result.candidates[1].script) == ("Heat water.", "Wait 1 s.", "Pour.")
    assert result.gold_answer.provenance.registered_name == "fake"
    assert result.gold_answer.source == pb.GOLD_ANSWER_SOURCE_POOLED
    assert list(result.gold_answer.pool_ids) == ["c0", "c1"]
    assert result.usage.prompt_token_count == 7 * CALL.prompt_token_count
    assert not result.usage.HasField("cost_usd")


async def test_judges_do_not_learn_who_wrote_what() -> None:
    roles = ("synthesize", "critic", "execute", "commonsense")
    listeners = {role: Listener(role) for role in roles}
    fakes = [Fake(role, listeners[role], capabilities=[USES_POOL]) for role in roles]
    async with gateway_client(*fakes) as client:
        await evaluate(client, scripts_request(3))
    seen = [request for listener in listeners.values() for request in listener.requests]
    assert len(seen) == 4
    assert not any(b"model-" in request.SerializeToString() for request in seen)


async def test_a_judge_gets_all_candidates_in_one_call() -> None:
    wants, other = Listener("critic"), Listener("execute")
    fakes = agents(Fake("critic", wants, capabilities=[USES_POOL]), Fake("execute", other))
    async with gateway_client(*fakes) as client:
        await evaluate(client, scripts_request(3))
    for requests in (wants.requests, other.requests):
        assert [[one.id for one in request.candidates] for request in requests] == [["c0", "c1", "c2"]]
        assert not any(request.pool for request in requests)


async def test_the_critic_and_whoever_asks_for_it_compare_with_the_gold_answer() -> None:
    critic, asks, other = Listener("critic"), Listener("commonsense"), Listener("execute")
    fakes = agents(
        Fake("critic", critic),
        Fake("commonsense", asks, capabilities=[USES_REFERENCE]),
        Fake("execute", other),
    )
    async with gateway_client(*fakes) as client:
        await evaluate(client, scripts_request(1))
    assert texts(critic.requests[0].reference) == GOLD_STEPS
    assert texts(asks.requests[0].reference) == GOLD_STEPS
    assert not other.requests[0].HasField("reference")


async def test_a_fast_judge_is_heard_before_a_slow_one_ends() -> None:
    heard = asyncio.Event()

    async def slow(request: Any) -> Assessment:
        await heard.wait()
        return all_pass("execute")

    async with (
        gateway_client(*agents(Fake("execute", slow))) as client,
        aclosing(client.evaluate_scripts(scripts_request(1), timeout=30)) as events,
    ):
        roles = []
        async for event in events:
            if event.HasField("assessment"):
                roles.append(event.assessment.role)
                if len(roles) == 2:
                    heard.set()
    assert sorted(roles[:2]) == ["commonsense", "critic"]
    assert roles[2] == "execute"


async def test_only_judges_that_compare_wait_for_the_gold_answer() -> None:
    heard = asyncio.Event()

    async def slow(request: Any) -> SynthesizeResponse:
        await heard.wait()
        return SynthesizeResponse(script=steps(*GOLD_STEPS))

    order = []
    async with (
        gateway_client(*agents(Fake("synthesize", slow))) as client,
        aclosing(client.evaluate_scripts(scripts_request(1), timeout=30)) as events,
    ):
        async for event in events:
            order.append(event.assessment.role if event.HasField("assessment") else event.WhichOneof("event"))
            if {"execute", "commonsense"} <= set(order):
                heard.set()
    assert order[0] == "accepted"
    assert sorted(map(str, order[1:3])) == ["commonsense", "execute"]
    assert order[3:] == ["gold_answer", "critic", "result"]


@pytest.mark.parametrize(
    ("fields", "pool", "reference"),
    [
        ({}, ["c0", "c1"], GOLD_STEPS),
        ({"gold_answer_source": pb.GOLD_ANSWER_SOURCE_POOLED}, ["c0", "c1"], GOLD_STEPS),
        ({"gold_answer_source": pb.GOLD_ANSWER_SOURCE_DIRECT}, [], GOLD_STEPS),
        ({"gold_answer_source": pb.GOLD_ANSWER_SOURCE_NONE}, None, ()),
        (
            {"gold_answer_source": pb.GOLD_ANSWER_SOURCE_GIVEN, "gold_answer": steps("Do it right.")},
            None,
            ("Do it right.",),
        ),
    ],
)
async def test_the_gold_answer_comes_from_where_the_request_says(
    fields: dict[str, Any], pool: list[str] | None, reference: tuple[str, ...]
) -> None:
    synthesizer, critic = Listener("synthesize"), Listener("critic")
    request = scripts_request(2, **fields)
    request.candidates.append(Candidate(id="empty", text=" \n"))
    async with gateway_client(*agents(Fake("synthesize", synthesizer), Fake("critic", critic))) as client:
        result = await evaluate_result(client, request)
    asked = [[one.id for one in request.candidates] for request in synthesizer.requests]
    assert asked == ([] if pool is None else [pool])
    assert {texts(request.reference) for request in critic.requests} == {reference}
    assert texts(result.gold_answer.script) == reference
    assert result.HasField("gold_answer") == bool(reference)


async def test_a_single_judge_sees_a_gold_answer_only_where_one_is_asked_for() -> None:
    judge = Listener("script-judge")
    async with gateway_client(Fake("script-judge", judge), Fake("synthesize")) as client:
        alone = scripts_request(1, mechanism=pb.MECHANISM_SINGLE_JUDGE)
        result = await evaluate_result(client, alone)
        alone.gold_answer_source = pb.GOLD_ANSWER_SOURCE_POOLED
        await evaluate(client, alone)
    assert [texts(request.reference) for request in judge.requests] == [(), GOLD_STEPS]
    assert result.mechanism == pb.MECHANISM_SINGLE_JUDGE
    assert tuple(verdict.criterion for verdict in result.candidates[0].verdicts) == ABSEVAL
    assert [one.role for one in result.candidates[0].assessments] == ["script-judge"]


async def test_models_sampling_and_repeat_reach_the_judges() -> None:
    critic, execute = Listener("critic"), Listener("execute")
    request = scripts_request(
        1,
        judges=[JudgeSelection(role="critic", model="special")],
        options=JudgeOptions(model="general", repeat_index=3, sampling=Sampling(temperature=0.7)),
    )
    async with gateway_client(*agents(Fake("critic", critic), Fake("execute", execute))) as client:
        events = await evaluate(client, request)
    assert critic.requests[0].options.model == "special"
    assert execute.requests[0].options.model == "general"
    assert execute.requests[0].options.repeat_index == 3
    assert execute.requests[0].options.sampling.temperature == 0.7
    models = {judge.role: judge.model for judge in events[0].accepted.judges}
    assert models == {
        "synthesize": "general",
        "critic": "special",
        "execute": "general",
        "commonsense": "general",
    }


async def test_a_panel_decides_by_majority_and_every_member_is_kept() -> None:
    async def fail(request: Any) -> Assessment:
        return Assessment(verdicts=[failed("executable", rationale="No.")])

    fakes = [
        Fake("commonsense", fail, name="a"),
        Fake("commonsense", fail, name="b"),
        Fake("commonsense", name="c"),
    ]
    panel = [JudgeSelection(role="commonsense", judge=name) for name in "cab"]
    async with gateway_client(*agents(*fakes)) as client:
        result = await evaluate_result(client, scripts_request(1, judges=panel))
    candidate = result.candidates[0]
    verdict = next(one for one in candidate.verdicts if one.criterion == "executable")
    assert verdict.outcome == verdict_pb2.OUTCOME_FAIL
    assert verdict.rationale == "Panel: c PASS, a FAIL, b FAIL."
    assert [one.judge for one in candidate.assessments] == ["fake", "fake", "c", "a", "b"]


async def test_a_judges_own_criteria_stand_after_the_papers() -> None:
    async def judge(request: Any) -> Assessment:
        return Assessment(verdicts=[passed("executable"), failed("tone"), passed("brevity")])

    fake = Fake("commonsense", judge, criteria=["executable", "tone", "brevity", "order_correct"])
    async with gateway_client(*agents(fake)) as client:
        result = await evaluate_result(client, scripts_request(1))
    assert [one.criterion for one in result.candidates[0].verdicts] == [*ABSEVAL, "brevity", "tone"]


async def test_forty_candidates_of_every_kind_are_all_accounted_for() -> None:
    async def judge(request: Any) -> Assessment:
        return Assessment(verdicts=[Verdict(criterion="executable", outcome=verdict_pb2.OUTCOME_FAIL)])

    request = scripts_request(37)
    request.candidates.add(id="empty")
    request.candidates.add(id="chinese", text="1. 烧水。\n2. 泡茶。\n3. 等三分钟。")
    request.candidates.add(id="long", text="1. " + "x" * 10_000 + "\n2. y\n3. z")
    async with gateway_client(*agents(Fake("commonsense", judge)), calls_per_judge=1) as client:
        events = await evaluate(client, request)
    result = events[-1].result
    assert [one.candidate_id for one in result.candidates] == [one.id for one in request.candidates]
    assert all(tuple(v.criterion for v in one.verdicts) == ABSEVAL for one in result.candidates)
    # The empty one is not judged.
    assert sum(event.HasField("assessment") for event in events) == 117
    readings = {one.candidate_id: one.reading for one in result.candidates}
    assert readings["empty"] == verdict_pb2.READING_EMPTY
    assert len(result.candidates[38].script.steps) == 3


@pytest.mark.parametrize("abstains", [False, True])
async def test_candidates_without_a_script_fail_without_a_judge(abstains: bool) -> None:
    critic = Listener("critic")
    request = scripts_request(1, unusable_outputs_abstain=abstains)
    request.task.constraints.append("at home")
    request.candidates.add(id="empty", text=" ")
    request.candidates.add(id="shy", failure_reason=verdict_pb2.ABSTAIN_REASON_REFUSED)
    async with gateway_client(*agents(Fake("critic", critic))) as client:
        result = await evaluate_result(client, request)
    assert [[one.id for one in request.candidates] for request in critic.requests] == [["c0"]]
    judged, *failed = result.candidates
    assert {verdict.outcome for verdict in judged.verdicts} == {verdict_pb2.OUTCOME_PASS}
    reasons = [verdict_pb2.ABSTAIN_REASON_EMPTY, verdict_pb2.ABSTAIN_REASON_REFUSED]
    assert [one.failure_reason for one in failed] == ([0, 0] if abstains else reasons)
    for one, reason in zip(failed, reasons, strict=True):
        assert [verdict.criterion for verdict in one.verdicts] == list(ABSEVAL)
        outcome = verdict_pb2.OUTCOME_ABSTAIN if abstains else verdict_pb2.OUTCOME_FAIL
        assert {(verdict.outcome, verdict.abstain_reason) for verdict in one.verdicts} == {
            (outcome, reason if abstains else 0)
        }


async def test_a_failure_has_no_script_and_one_of_three_reasons() -> None:
    request = scripts_request(2)
    request.candidates[0].failure_reason = verdict_pb2.ABSTAIN_REASON_REFUSED
    request.candidates.add(id="late", failure_reason=verdict_pb2.ABSTAIN_REASON_TIMED_OUT)
    async with gateway_client(*agents()) as client:
        with pytest.raises(ServiceError) as raised:
            await evaluate_result(client, request)
    assert [one.field for one in raised.value.violations] == [
        "candidates[0].failure_reason",
        "candidates[2].failure_reason",
    ]


async def test_a_task_whose_candidates_all_failed_calls_no_judge() -> None:
    request = scripts_request(0)
    request.candidates.add(id="shy", model="m", failure_reason=verdict_pb2.ABSTAIN_REASON_REFUSED)
    synthesizer = Listener("synthesize")
    async with gateway_client(*agents(Fake("synthesize", synthesizer))) as client:
        result = await evaluate_result(client, request)
    assert not synthesizer.requests
    assert result.candidates[0].failure_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
    assert not result.HasField("gold_answer")
