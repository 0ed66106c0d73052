"""The rubric judge with a classifier or a reward model, against a server that speaks vLLM's pooling API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from aiohttp import web

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest, JudgeResponse
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.service.settings import SettingsError
from services.judging.rubrics.judge import SPEC
from tests.support.http_servers import serve_http
from tests.support.judges import serve_app

PASS, FAIL, ABSTAIN = verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL, verdict_pb2.OUTCOME_ABSTAIN


class Server:
    """What a server of a model was asked, and what it answers."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, Any, str]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append((request.path, body, request.headers.get("Authorization", "")))
        said = self._answer(body)
        said = said() if callable(said) else said
        return said if isinstance(said, web.StreamResponse) else web.json_response(said)


@asynccontextmanager
async def pooling(answer: Callable[[Any], Any]) -> AsyncIterator[Server]:
    server = Server(answer)
    async with serve_http(web.post("/{api}", server.handle)) as server.url:
        yield server


def classified(label: str, *probabilities: float) -> Any:
    data = {"index": 0, "label": label, "probs": list(probabilities), "num_classes": len(probabilities)}
    return {"id": "classify-1", "object": "list", "model": "guard", "data": [data]}


def scored(score: Any) -> Any:
    return {"id": "score-1", "object": "list", "data": [{"index": 0, "object": "score", "score": score}]}


async def judged(
    server: Server, criteria: Any, api: str = "classify", text: str = "It ships on Monday.", **fields: Any
) -> JudgeResponse:
    settings = {"base_url": server.url, "api": api, "model": "guard", "criteria": criteria, **fields}
    request = JudgeRequest(
        task=Task(goal="Where is my order?"),
        candidates=[
            JudgeCandidate(
                id="a",
                text=text,
                reading=verdict_pb2.READING_TEXT,
                context=[Document(text="It ships Monday.")],
            )
        ],
        criteria=[Criterion(id=name) for name in criteria],
    )
    async with serve_app(SPEC(classifier=settings)) as channel:
        (response,) = [one async for one in JudgeServiceStub(channel).Judge(request)]
    return response


@pytest.mark.parametrize(
    ("answer", "outcome", "confidence"),
    [
        (classified("safe", 0.9, 0.1), PASS, 0.9),
        (classified("unsafe", 0.2, 0.8), FAIL, 0.8),
        (
            lambda: web.json_response(
                classified("safe", 1.0), dumps=lambda one: json.dumps(one) + " " * 900_000
            ),
            PASS,
            1.0,
        ),
        (classified("safe", 0.4, 0.35, 0.25), ABSTAIN, 0.0),
    ],
)
async def test_the_likeliest_label_decides_if_it_is_likely_enough(
    answer: Any, outcome: int, confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GUARD_KEY", "secret")
    async with pooling(lambda _: answer) as server:
        response = await judged(server, {"harmless": {"labels": ["safe"]}}, api_key_env="GUARD_KEY")
    assert server.asked == [
        ("/classify", {"model": "guard", "input": "It ships on Monday."}, "Bearer secret")
    ]
    (verdict,) = response.assessment.verdicts
    assert (verdict.outcome, verdict.confidence) == (outcome, confidence)
    if outcome == ABSTAIN:
        assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE
    assert response.assessment.provenance.name == "classifier-judge"
    assert response.assessment.provenance.parameters["model"] == "guard"


async def test_a_score_beside_the_context_or_the_task_decides_by_its_threshold() -> None:
    criteria = {
        "grounded": {"beside": "context", "threshold": 0.7},
        "good": {"threshold": -1},
        "right": {"beside": "reference"},
    }
    scores = {"It ships Monday.": 0.5, "Where is my order?": -0.25}
    async with pooling(lambda body: scored(scores[body["text_1"]])) as server:
        response = await judged(server, criteria, "score")
    grounded, good, right = response.assessment.verdicts
    assert (grounded.outcome, grounded.score) == (FAIL, 0.5)
    assert (good.outcome, good.HasField("score")) == (PASS, False)
    assert right.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
    assert [body["text_2"] for _, body, _ in server.asked] == ["It ships on Monday."] * 2


async def test_a_text_that_is_longer_than_the_model_reads_abstains() -> None:
    # The words of vLLM 0.32.
    said = (
        "This model's maximum context length is 256 tokens. However, your prompt contains at least 257 input "
        "tokens, which exceeds this limit even without any output tokens."
    )
    error = {"error": {"message": said, "type": "BadRequestError", "param": "input_tokens", "code": 400}}
    async with pooling(lambda _: lambda: web.json_response(error, status=400)) as server:
        response = await judged(server, {"harmless": {"labels": ["safe"]}})
    (verdict,) = response.assessment.verdicts
    assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_CONTEXT_LENGTH_EXCEEDED
    assert "maximum context length is 256 tokens" in verdict.rationale


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (web.Response(status=503, text="loading"), grpc.StatusCode.UNAVAILABLE, "status 503: loading"),
        (web.Response(status=400, text="too long"), grpc.StatusCode.FAILED_PRECONDITION, "too long"),
        (web.Response(status=302, headers={"Location": "http://169.254.169.254"}), None, "status 302"),
        (web.Response(text=" " * (1 << 21)), grpc.StatusCode.INTERNAL, "longer than 1 MiB"),
        (web.Response(text="{"), grpc.StatusCode.INTERNAL, "is no JSON"),
        ({"data": []}, grpc.StatusCode.INTERNAL, "has not one result"),
        (classified("safe", 2.0), grpc.StatusCode.INTERNAL, "outside 0 to 1"),
        (classified("safe"), grpc.StatusCode.INTERNAL, "no label with probabilities"),
        ({"data": [{"label": "safe", "probs": [True]}]}, grpc.StatusCode.INTERNAL, "has no number"),
    ],
)
async def test_a_server_that_fails_is_an_error_of_the_candidate(answer: Any, code: Any, words: str) -> None:
    async with pooling(lambda _: answer) as server:
        response = await judged(server, {"harmless": {"labels": ["safe"]}})
    assert words in response.error.message
    if code is not None:
        assert response.error.code == code.value[0]


async def test_a_server_that_is_away_is_unavailable() -> None:
    async with pooling(lambda _: None) as server:
        pass
    response = await judged(server, {"harmless": {"labels": ["safe"]}})
    assert response.error.code == grpc.StatusCode.UNAVAILABLE.value[0]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "classifier.criteria: is empty"),
        ({"criteria": {"harmless": {}}}, r"harmless\.labels: is empty"),
        ({"criteria": {"good": {}}, "api": "score", "api_key_env": "NONE_SET"}, "NONE_SET is not set"),
    ],
)
async def test_settings_that_decide_nothing_are_refused(settings: Any, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        async with SPEC(classifier=settings).open():
            pass
