"""An evaluation is the same whether somebody follows it or wants its result alone."""

from __future__ import annotations

import asyncio

import pytest

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    EvaluateScriptsResponse,
    ScriptsResult,
)
from gateway.evaluations.streams import Emit, Evaluation

RESULT = ScriptsResult(task=Task(goal="Make tea"))


class Told(Evaluation):
    """Tells of one assessment, then breaks or has a result."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(EvaluateScriptsResponse, lambda: EvaluationAccepted(assessment_count=1))
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
