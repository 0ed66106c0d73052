"""What is judged, and what a judge asks of a model for it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1 import evaluation_service_pb2
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits, RunSpec, ScriptsRunOptions
from dramaturg.api.generation.v1.generation_service_pb2 import GenerateRequest, GenerateResponse
from dramaturg.api.judging.v1.script_judge_service_pb2 import JudgeScriptRequest
from dramaturg.datasets.json_lines import json_objects
from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from services.judging.app import PROMPTS
from services.judging.script.llm import LlmScriptJudge
from tests.support.engines import lines

SAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "scripts" / "tasks.jsonl"
VERDICTS = 7
"""How many verdicts a judgement has."""


def evaluation(number: int, candidates: int = 1) -> EvaluateScriptsRequest:
    """The first task of the samples with its first candidate, so many times; each has a step of its own.

    Args:
        number: What no other evaluation has.
        candidates: How many candidates.
    """
    row = _sample()
    made = ParseDict({"task": row["task"]}, EvaluateScriptsRequest())
    made.task.id = str(number)
    made.mechanism = evaluation_service_pb2.MECHANISM_SINGLE_JUDGE
    for index in range(candidates):
        candidate = ParseDict(row["candidates"][0], made.candidates.add())
        candidate.id = candidate.model = f"model-{index}"
        candidate.script.steps.add(text=f"Write down the numbers {number} and {index}.")
    return made


def run(numbers: Iterable[int], candidates: int, max_concurrent_samples: int) -> RunSpec:
    """A run of evaluations.

    Args:
        numbers: A number for each evaluation, which no other has.
        candidates: How many candidates each has.
        max_concurrent_samples: How many evaluations are made at once.
    """
    spec = RunSpec(
        scripts=ScriptsRunOptions(
            mechanism=evaluation_service_pb2.MECHANISM_SINGLE_JUDGE,
            gold_answer_source=evaluation_service_pb2.GOLD_ANSWER_SOURCE_NONE,
        ),
        limits=RunLimits(max_concurrent_samples=max_concurrent_samples),
    )
    rows = [evaluation(number, candidates) for number in numbers]
    for row in rows:
        # A run says it once, for all.
        row.ClearField("mechanism")
    spec.dataset.content = lines(rows)
    return spec


async def question() -> GenerateRequest:
    """What the judge asks of a model for an evaluation."""
    asked: list[GenerateRequest] = []

    class Generation:
        async def Generate(self, request: GenerateRequest) -> GenerateResponse:
            asked.append(request)
            return GenerateResponse()

    asker: Any = Asker(Generation())  # type: ignore[arg-type]  # all of a stub that it uses
    judge = LlmScriptJudge(asker, PromptLibrary(PROMPTS), ExcerptLimits())
    wanted = evaluation(0)
    await judge.judge(JudgeScriptRequest(task=wanted.task, candidate=wanted.candidates[0]), judge.criteria)
    return asked[0]


def require_all_passed(verdicts: Iterable[Verdict]) -> None:
    """Requires that a judgement is one: every verdict a PASS, as the model answered, and no abstention."""
    found = [*verdicts]
    assert [verdict.outcome for verdict in found] == [verdict_pb2.OUTCOME_PASS] * VERDICTS, found


@cache
def _sample() -> dict[str, Any]:
    return next(row for _, row in json_objects(SAMPLES))
