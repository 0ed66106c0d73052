from __future__ import annotations

from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.evaluation.v1 import scripts_pb2 as pb
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.service.errors import ServiceError
from tests.support.gateway import Fake, agents, evaluate, gateway_client, scripts_request, steps

NONE = pb.GOLD_ANSWER_SOURCE_NONE
GIVEN = pb.GOLD_ANSWER_SOURCE_GIVEN


def select(role: str, judge: str = "", model: str = "") -> JudgeSelection:
    return JudgeSelection(role=role, judge=judge, model=model)


async def refusal(request: EvaluateScriptsRequest, *fakes: Fake) -> ServiceError:
    async with gateway_client(*(fakes or agents())) as client:
        with pytest.raises(ServiceError) as caught:
            await evaluate(client, request)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"candidates": [Candidate(id="a"), Candidate(id="b"), Candidate(id="a")]}, "candidates[2].id"),
        ({"candidates": []}, "candidates"),
        ({"gold_answer_source": GIVEN}, "gold_answer.steps"),
        ({"gold_answer_source": GIVEN, "gold_answer": steps(" ", "")}, "gold_answer.steps"),
        ({"gold_answer": steps("x")}, "gold_answer"),
        ({"gold_answer_source": NONE, "gold_answer": steps("x")}, "gold_answer"),
        ({"judges": [select("poet")]}, "judges[0].role"),
        ({"judges": [select("script-judge")]}, "judges[0].role"),
        ({"judges": [select("critic")], "mechanism": pb.MECHANISM_SINGLE_JUDGE}, "judges[0].role"),
        ({"judges": [select("synthesize")], "gold_answer_source": NONE}, "judges[0].role"),
        ({"judges": [select("critic", "fake"), select("critic", "fake")]}, "judges[1]"),
        ({"judges": [select("synthesize", model="a"), select("synthesize", model="b")]}, "judges[1]"),
        ({"mechanism": 9}, "mechanism"),
    ],
)
async def test_a_request_that_cannot_be_carried_out_is_refused_with_the_field(
    fields: dict[str, Any], path: str
) -> None:
    error = await refusal(scripts_request(**fields))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == error_reason_pb2.ERROR_REASON_FIELD_INVALID
    assert [violation.field for violation in error.violations] == [path]


async def test_every_violation_is_named() -> None:
    request = scripts_request(2, gold_answer=steps("x"), judges=[select("poet"), select("script-judge")])
    request.candidates[1].id = "c0"
    error = await refusal(request)
    fields = [violation.field for violation in error.violations]
    assert fields == ["candidates[1].id", "gold_answer", "judges[0].role", "judges[1].role"]


async def test_every_unknown_judge_is_named_with_those_that_there_are() -> None:
    error = await refusal(scripts_request(judges=[select("critic", "x"), select("execute", "y")]))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN
    assert error.metadata == {"role": "critic", "judge": "x"}
    assert [violation.field for violation in error.violations] == ["judges[0].judge", "judges[1].judge"]
    assert "fake" in error.violations[0].description


async def test_a_role_without_a_judge_is_unbound() -> None:
    error = await refusal(scripts_request(), Fake("synthesize"), Fake("critic"), Fake("commonsense"))
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert error.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND
    assert error.metadata == {"role": "execute"}


async def test_which_of_several_judges_grades_is_never_a_matter_of_their_order() -> None:
    fakes = agents(Fake("critic", name="a"), Fake("critic", name="b"))
    error = await refusal(scripts_request(), *fakes)
    assert error.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND
    assert "a, b" in error.message


async def test_the_default_serves_where_none_is_named_and_a_named_one_where_it_is() -> None:
    fakes = agents(Fake("critic", name="a"), Fake("critic", name="b", default=True))
    async with gateway_client(*fakes) as client:
        silent = await evaluate(client, scripts_request(1))
        named = await evaluate(client, scripts_request(1, judges=[select("critic", "a")]))
    for events, name in ((silent, "b"), (named, "a")):
        assert {judge.role: judge.judge for judge in events[0].accepted.judges}["critic"] == name


async def test_a_role_that_is_not_needed_may_be_unbound() -> None:
    fakes = [Fake("critic"), Fake("execute"), Fake("commonsense")]
    async with gateway_client(*fakes) as client:
        events = await evaluate(client, scripts_request(1, gold_answer_source=NONE))
    assert events[-1].HasField("result")
    assert not any(event.HasField("gold_answer") for event in events)
