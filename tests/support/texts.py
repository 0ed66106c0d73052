"""Requests for evaluations of texts, and judges of any criterion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.texts_pb2 import (
    EvaluatedText,
    EvaluateTextsRequest,
    EvaluateTextsResponse,
    RubricCriterion,
    TextsResult,
)
from dramaturg.api.judging.v1.judge_service_pb2 import (
    CriterionScale,
    JudgeCandidate,
    JudgeRequest,
    ScaleAnchor,
)
from dramaturg.client import DramaturgClient
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.testing import FakeJudge, RegisteredJudge, serve_gateway
from services.judging.rules.judge import RuleJudge

POLITE = RubricCriterion(id="polite", passes="The answer greets the customer.", fails="It is rude.")
CLEAR = RubricCriterion(
    id="clear",
    description="How easy the answer is to follow.",
    scale=CriterionScale(
        lowest=1,
        highest=5,
        anchors=[ScaleAnchor(value=1, meaning="Confusing."), ScaleAnchor(value=5, meaning="Clear.")],
    ),
)
QUESTION = "Where is my order?"


def texts_request(*texts: str, **fields: Any) -> EvaluateTextsRequest:
    """A request with these texts, written by "model-0" and so on."""
    written = texts or ("Hello! It ships tomorrow.", "Tomorrow.")
    return EvaluateTextsRequest(
        **{
            "task": Task(id="t1", goal=QUESTION),
            "texts": [
                EvaluatedText(id=f"a{index}", model=f"model-{index}", text=text)
                for index, text in enumerate(written)
            ],
            "criteria": [POLITE, CLEAR],
            **fields,
        }
    )


def judge(
    verdicts: Callable[[JudgeRequest, JudgeCandidate], Any] | None = None,
    *,
    capabilities: Sequence[str] = (ANY_CRITERION,),
    criteria: Sequence[str] = (),
    **fields: Any,
) -> FakeJudge:
    """A judge of any criterion. By default it passes all, and scores the highest score."""
    return FakeJudge(verdicts, capabilities=capabilities, criteria=criteria, **fields)


def registered(*judges: FakeJudge) -> list[RegisteredJudge]:
    """Rubric judges "judge-0" and so on, the first as the default, and the rule judge."""
    rubric_judges = [
        RegisteredJudge("rubric-judge", one.contract(), f"judge-{index}", default=index == 0)
        for index, one in enumerate(judges)
    ]
    return [
        *rubric_judges,
        RegisteredJudge("rule-judge", judge_contract(RuleJudge()), "built-in", default=True),
    ]


@asynccontextmanager
async def texts_client(*judges: FakeJudge, **settings: Any) -> AsyncIterator[DramaturgClient]:
    """A client of a gateway with such judges."""
    async with (
        serve_gateway(*registered(*judges), **settings) as server,
        DramaturgClient(server.target) as client,
    ):
        yield client


async def texts_events(client: DramaturgClient, request: EvaluateTextsRequest) -> list[EvaluateTextsResponse]:
    return [event async for event in client.evaluate_texts(request, timeout=30)]


async def texts_result(client: DramaturgClient, request: EvaluateTextsRequest) -> TextsResult:
    return (await texts_events(client, request))[-1].result
