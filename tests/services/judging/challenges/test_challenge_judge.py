"""ChallengeJudgeService over real gRPC, in front of the real generation service."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.identity.v1 import identity_service_pb2, identity_service_pb2_grpc
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import (
    FindChallengingTurnRequest,
    FindChallengingTurnResponse,
)
from dramaturg.api.judging.v1.challenge_judge_service_pb2_grpc import ChallengeJudgeServiceStub
from dramaturg.service.errors import from_rpc_error
from services.judging.challenges.judge import SPEC
from tests.services.judging.dialogues import TASK, dialogue, fenced, generation_target
from tests.support.judges import serve_app
from tests.support.openai_server import Answer, Body, OpenAIServer

TEXTS = [TASK.description, "/home/doe", "ls", "a b", "factor 91", "7 and 14", "thanks", ""]


def found(turn: Any, reason: str = "It is 7 and 13.") -> Body:
    return {"reason": reason, "turn": turn}


async def find(answer: Any, *texts: str) -> tuple[FindChallengingTurnResponse, list[Body]]:
    """Asks once; returns the response and the bodies that the provider got."""
    request = FindChallengingTurnRequest(task=TASK, utterances=dialogue(*(texts or TEXTS)))
    async with OpenAIServer(answer if callable(answer) else lambda _: answer) as server:
        async with (
            generation_target(server) as target,
            serve_app(SPEC(generation_target=target)) as channel,
        ):
            response = await ChallengeJudgeServiceStub(channel).FindChallengingTurn(request)
        return response, server.bodies


async def test_turns_are_numbered_from_one_and_counted_by_pairs() -> None:
    response, [body] = await find(found(3))
    assert response.turn == 3
    assert response.rationale == "It is 7 and 13."
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    shown = body["messages"][-1]["content"]
    turns = [
        fenced(f"turn {index // 2 + 1} {'simulator' if index % 2 else 'user'}", text)
        for index, text in enumerate(TEXTS)
    ]
    assert "The dialogue:\n" + "\n".join(turns) + "\n\nNumber of turns: 4." in shown
    schema = body["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["reason", "turn"]
    assert schema["properties"]["turn"] == {"type": "integer", "minimum": 0, "maximum": 4}
    assert body["temperature"] == 0
    provenance = response.provenance
    assert (provenance.name, provenance.contract) == (
        "llm-challenge-judge",
        "dramaturg.api.judging.v1.ChallengeJudgeService",
    )
    assert [prompt.name for prompt in provenance.prompts] == ["find_challenging_turn"]
    assert provenance.usage.provider_call_count == len(provenance.completions) == 1


@pytest.mark.parametrize("turn", [0, 1, 4])
async def test_zero_is_an_answer_and_so_is_the_last_turn(turn: int) -> None:
    response, _ = await find(found(turn))
    assert response.HasField("turn")
    assert response.turn == turn


@pytest.mark.parametrize("bad", [5, 8, -1, 2.5, [1, 3], None, False, "turn 3 or 4", "3 - 4"])
async def test_a_turn_that_is_none_is_asked_for_once_more(bad: Any) -> None:
    answers = [found(bad), found(2)]
    response, bodies = await find(lambda _: answers.pop(0))
    assert response.turn == 2
    assert len(bodies) == 2
    response, bodies = await find(found(bad))
    assert not response.HasField("turn")
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    assert len(bodies) == len(response.provenance.completions) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer("", refusal="No."), verdict_pb2.ABSTAIN_REASON_REFUSED),
        (Answer('{"reason": "', finish_reason="length"), verdict_pb2.ABSTAIN_REASON_TRUNCATED),
        (Answer(""), verdict_pb2.ABSTAIN_REASON_EMPTY),
        (Answer("Turn: [[3]] or [[4]]."), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (Answer("context too long", status=400), verdict_pb2.ABSTAIN_REASON_CALL_REJECTED),
    ],
)
async def test_without_an_answer_it_abstains(answer: Answer, reason: Any) -> None:
    response, _ = await find(answer)
    assert (response.HasField("turn"), response.abstain_reason) == (False, reason)
    assert response.rationale


@pytest.mark.parametrize("answer", [found("turn 3"), found("[[3]]"), "Turn: [[3]].", "It fails.\n\nTurn: 3"])
async def test_a_clear_turn_in_another_form_is_read_at_once(answer: Any) -> None:
    response, bodies = await find(answer)
    assert response.turn == 3
    assert len(bodies) == 1


@pytest.mark.parametrize("texts", [["a", "b", "c"]])
async def test_half_a_turn_is_refused(texts: list[str]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await find(found(1), *texts)
    error = from_rpc_error(caught.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [tuple(violation) for violation in error.violations] == [
        ("utterances", "must end with the simulator's utterance")
    ]


async def test_identity_and_name() -> None:
    app = SPEC()
    assert app.name == "challenge-judge"
    async with serve_app(app) as channel:
        stub = identity_service_pb2_grpc.IdentityServiceStub(channel)
        request = identity_service_pb2.GetIdentityRequest(
            contract="dramaturg.api.judging.v1.ChallengeJudgeService"
        )
        identity = (await stub.GetIdentity(request)).identity
    assert identity.name == "llm-challenge-judge"
