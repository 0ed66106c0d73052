"""A judge in front of the real generation service and an endpoint that misbehaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment, Outcome
from dramaturg.judge import roles
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from services.agents.critic.judge import SPEC
from services.generation.app import App as GenerationApp
from tests.support.generation import endpoint, generation_settings
from tests.support.judges import STEPS, TASK, candidate, section, serve_app
from tests.support.openai_server import Answer, Body, OpenAIServer

GOOD = {"actions": "Fine."} | {criterion: section("pass") for criterion in roles.CRITIC.criteria}


async def critique(
    responder: Any, *, model: str = "", times: int = 1
) -> tuple[list[Assessment], OpenAIServer]:
    """Asks the critic so often, through every service on the way."""
    request = judge_request(TASK, [candidate(*STEPS)], options=JudgeOptions(model=model))
    async with (
        OpenAIServer(responder) as server,
        GenerationApp(generation_settings(providers={"p": endpoint(server)})).open() as contracts,
        Server(contracts, ServerSettings.loopback()) as generation,
        serve_app(SPEC(generation_target=generation.target)) as channel,
    ):
        return [await judge_one(channel, request, timeout=20) for _ in range(times)], server


def summary(assessment: Assessment) -> set[str]:
    return {
        AbstainReason.Name(verdict.abstain_reason)
        if verdict.abstain_reason
        else Outcome.Name(verdict.outcome)
        for verdict in assessment.verdicts
    }


async def test_an_equal_question_is_bought_once() -> None:
    assessments, server = await critique(lambda _: json.dumps(GOOD), times=3)
    assert [summary(assessment) for assessment in assessments] == [{"OUTCOME_PASS"}] * 3
    assert len(server.requests) == 1
    assert [assessment.provenance.completions[0].cached for assessment in assessments] == [False, True, True]


async def test_the_form_reaches_the_endpoint() -> None:
    _, server = await critique(lambda _: json.dumps(GOOD))
    body: Body = server.requests[0].body
    form = body["response_format"]["json_schema"]
    assert form["name"] == "verdicts"
    assert list(form["schema"]["properties"]) == ["actions", *roles.CRITIC.criteria]
    assert body["temperature"] == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (f"Here you are:\n```json\n{json.dumps(GOOD)}\n```", "OUTCOME_PASS"),
        (json.dumps(GOOD | dict.fromkeys(roles.CRITIC.criteria, True)), "ABSTAIN_REASON_UNPARSABLE"),
        ("I would say that it passes.", "ABSTAIN_REASON_UNPARSABLE"),
        ("", "ABSTAIN_REASON_EMPTY"),
        (Answer(refusal="I cannot help with that."), "ABSTAIN_REASON_REFUSED"),
        (Answer(json.dumps(GOOD)[:50], finish_reason="length"), "ABSTAIN_REASON_TRUNCATED"),
        (Answer("bad key", status=401), "UNAUTHENTICATED"),
        (Answer("broken", status=500), "ABSTAIN_REASON_PROVIDER_UNAVAILABLE"),
    ],
)
async def test_what_the_endpoint_answers_decides_the_verdict(answer: str | Answer, expected: str) -> None:
    if expected == "UNAUTHENTICATED":
        with pytest.raises(ServiceError) as caught:
            await critique(lambda _: answer)
        reason = caught.value.reason
        assert reason == error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED
        return
    [assessment], _ = await critique(lambda _: answer)
    assert summary(assessment) == {expected}


async def test_an_unknown_model_is_the_candidates_error() -> None:
    def unknown(body: Body) -> Answer:
        return Answer("no such model", status=404, error_code="model_not_found")

    with pytest.raises(ServiceError) as caught:
        await critique(unknown, model="p/unheard-of")
    assert caught.value.reason == error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN
