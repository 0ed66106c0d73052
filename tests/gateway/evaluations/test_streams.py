"""An evaluation is the same whether somebody follows it or wants its result alone.

What the gateway counts of evaluations.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment, Verdict
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult, SimulatedDialogue
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    EvaluateScriptsResponse,
    ScriptsResult,
)
from dramaturg.judge.roles import CRITIC
from dramaturg.judge.verdicts import abstained, passed
from dramaturg.kinds import find_kind
from dramaturg.service.errors import ServiceError
from gateway.evaluations.scripts.kind import ScriptsEvaluation
from gateway.evaluations.streams import Emit, Evaluation, count_result
from tests.support.gateway import Fake, agents, all_pass, evaluate_result, gateway_client, scripts_request
from tests.support.telemetry import counted

RESULT = ScriptsResult(task=Task(goal="Make tea"))


class OneAssessment:
    """A plan of one assessment."""

    def accepted(self) -> EvaluationAccepted:
        """See ``Plan.accepted``."""
        return EvaluationAccepted(assessment_count=1)


class Told(Evaluation[OneAssessment]):
    """Tells of one assessment, then breaks or has a result."""

    response_type = EvaluateScriptsResponse

    def __init__(self, error: Exception | None = None) -> None:
        none: Any = None  # it asks no judge
        super().__init__(OneAssessment(), none, none)
        self._error = error

    async def work(self, emit: Emit) -> ScriptsResult:
        """See ``Evaluation.work``."""
        emit(assessment=CandidateAssessment(candidate_id="a"))
        if self._error is not None:
            raise self._error
        return RESULT


async def test_what_happens_is_told_in_order_and_the_result_last() -> None:
    events = [event async for event in Told().events()]
    assert events == [
        EvaluateScriptsResponse(accepted=EvaluationAccepted(assessment_count=1)),
        EvaluateScriptsResponse(assessment=CandidateAssessment(candidate_id="a")),
        EvaluateScriptsResponse(result=RESULT),
    ]


async def test_nobody_need_follow_it() -> None:
    assert await Told().result() == RESULT
    with pytest.raises(KeyError):
        await Told(KeyError("of the work")).result()


async def test_what_came_before_it_broke_is_told() -> None:
    events = Told(KeyError("of the work")).events()
    assert (await anext(events)).WhichOneof("event") == "accepted"
    assert (await anext(events)).WhichOneof("event") == "assessment"
    with pytest.raises(KeyError):
        await anext(events)


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_what_it_cancels_has_ended_when_it_ends(how: str) -> None:
    cancelled, may_end, ended = asyncio.Event(), asyncio.Event(), False

    class Slow(Told):
        async def work(self, emit: Emit) -> ScriptsResult:
            nonlocal ended
            emit(assessment=CandidateAssessment(candidate_id="a"))
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
                await may_end.wait()
                ended = True
            return RESULT

    events = Slow().events()
    await anext(events)
    await anext(events)
    if how == "closed":
        ending = asyncio.create_task(events.aclose())
    else:
        ending = asyncio.create_task(anext(events))
        await asyncio.sleep(0)
        ending.cancel()
    await cancelled.wait()
    assert not ending.done()
    may_end.set()
    await asyncio.wait([ending])
    assert ended


DOWN = ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "down")


async def test_a_judge_that_fails_is_counted_with_its_abstentions() -> None:
    async def fail(request: Any) -> Any:
        raise DOWN

    with counted() as counts:
        async with gateway_client(*agents(Fake("execute", fail))) as client:
            result = await evaluate_result(client, scripts_request(3))
        found = counts.now()
    assert found.by("dramaturg_judge_calls_total", "outcome", role="execute") == {"judge-unavailable": 3}
    assert found.by("dramaturg_judge_calls_total", "outcome", role="critic") == {"answered": 3}
    assert found.sum("dramaturg_judge_call_duration_seconds_count", role="execute", judge="fake") == 3
    reasons = Counter(
        verdict.abstain_reason
        for candidate in result.candidates
        for verdict in candidate.verdicts
        if verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN
    )
    assert reasons.keys() == {verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE}
    assert found.by("dramaturg_abstentions_total", "reason") == {"judge-unavailable": reasons.total()}
    assert found.sum("dramaturg_judgements_total") == 3 * 7
    assert found.by("dramaturg_evaluations_total", "evaluation") == {"scripts": 1}


async def test_reasons_that_do_not_exist_have_one_label() -> None:
    async def judge(request: Any) -> Assessment:
        return Assessment(
            verdicts=[
                Verdict(
                    criterion=criterion,
                    outcome=verdict_pb2.OUTCOME_ABSTAIN,
                    abstain_reason=AbstainReason.ValueType(1000 + place),
                )
                for place, criterion in enumerate(CRITIC.criteria)
            ]
        )

    with counted() as counts:
        async with gateway_client(*agents(Fake("critic", judge))) as client:
            await evaluate_result(client, scripts_request(1))
        found = counts.now()
    assert found.by("dramaturg_abstentions_total", "reason") == {"unknown": len(CRITIC.criteria)}


async def test_every_judge_of_a_panel_counts() -> None:
    async def approve(request: Any) -> Any:
        return all_pass("critic")

    fakes = [Fake("critic", approve, name=name, default=name == "a") for name in ("a", "b")]
    request = scripts_request(1)
    for fake in fakes:
        request.judges.add(role="critic", judge=fake.name)
    with counted() as counts:
        async with gateway_client(*agents(*fakes)) as client:
            await evaluate_result(client, request)
        found = counts.now()
    assert found.by("dramaturg_judgements_total", "judge", role="critic") == {"a": 3, "b": 3}


def test_judgements_of_every_evaluation_are_counted() -> None:
    decision, dialogue, scripts = DecisionResult(), DialogueResult(), ScriptsResult()
    decision.choices.add(model="m", correct=True)
    decision.choices.add(model="m", abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED)
    dialogue.ratings.add(judge="j").rating.value = 7
    dialogue.ratings.add(judge="j").rating.abstain_reason = verdict_pb2.ABSTAIN_REASON_TRUNCATED
    verdicts: list[Verdict] = [
        passed("goal", rationale="."),
        abstained("order", verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "."),
    ]
    assessed = CandidateAssessment(role="critic", judge="j")
    assessed.assessment.verdicts.extend(verdicts)
    scripts.candidates.add(assessments=[assessed])
    with counted() as counts:
        for result, kind in ((decision, "decision"), (dialogue, "dialogue")):
            found_kind = find_kind(kind)
            assert found_kind is not None
            rows = found_kind.results.rows(result, False)
            count_result(result, Evaluation.judgements(result, rows))
        count_result(SimulatedDialogue(challenging_turn=0), ())
        count_result(scripts, ScriptsEvaluation.judgements(scripts, ()))
        found = counts.now()
    assert found.by("dramaturg_judgements_total", "outcome", evaluation="decision") == {
        "pass": 1,
        "abstain": 1,
    }
    assert found.by("dramaturg_judgements_total", "outcome", evaluation="dialogue") == {
        "value": 1,
        "abstain": 1,
    }
    assert found.by("dramaturg_abstentions_total", "reason") == {
        "refused": 1,
        "truncated": 1,
        "unparsable": 1,
    }
    assert found.by("dramaturg_abstentions_total", "role", evaluation="scripts") == {"critic": 1}
    assert found.sum("dramaturg_evaluations_total") == 4
