"""Inserts faults into scripts through AuthoringService (ABSEval, Table 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.generation.v1.authoring_datasets_pb2 import PerturbScriptRequest, PerturbScriptResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.judge.provenance import total_usage
from dramaturg.meta_evaluation.rules import BY_MODEL, Category
from dramaturg_research.concurrent_calls import call_each
from dramaturg_research.perturbations.originals import Original
from dramaturg_research.perturbations.variants import Skipped, Variant

DELETE_CRUCIAL = "delete-crucial"
"""The operation that deletes the most crucial steps, which a model chooses (ABSEval, Table 10)."""


@dataclass(frozen=True)
class Perturber:
    """The settings of the calls to AuthoringService."""

    model: str
    """The model. Empty: the author's default."""
    concurrency: int
    """The maximum number of concurrent calls."""
    timeout: float
    """The timeout of one call, in seconds."""
    operation: str = BY_MODEL
    """The operation name of the faults."""
    usage: Usage = field(default_factory=Usage)
    """Receives the usage of the calls."""

    async def perturb(
        self,
        channel: grpc.aio.Channel,
        originals: Sequence[Original],
        categories: Sequence[Category],
        skipped: Skipped,
    ) -> list[list[Variant]]:
        """For each script a variant of each category, those that there are.

        Args:
            channel: A channel to AuthoringService.
            originals: The scripts.
            categories: The categories.
            skipped: Receives each category without a variant, and the reason.
        """
        wanted = [(one, category) for one in originals for category in categories]
        asked = [(one, category) for one, category in wanted if not inapplicable(one, category)]
        for one, category in wanted:
            if problem := inapplicable(one, category):
                skipped.add(category, problem)
        author = AuthoringServiceStub(channel)
        answers = await call_each(
            [_request(one, category, self.model) for one, category in asked],
            lambda request: author.PerturbScript(request, timeout=self.timeout),
            lambda why: PerturbScriptResponse(failure=why),
            self.concurrency,
        )
        self.usage.CopyFrom(total_usage([self.usage, *(answer.provenance.usage for answer in answers)]))
        made: dict[Original, list[Variant]] = {one: [] for one in originals}
        for (one, category), answer in zip(asked, answers, strict=True):
            if answer.failure or not answer.script.steps:
                skipped.add(f"{self.operation}/{category}", answer.failure or "there is no script")
                continue
            answer.perturbation.operation = self.operation
            steps = [step.text for step in answer.script.steps]
            made[one].append(Variant(one, steps, category, answer.perturbation))
        return list(made.values())


def _request(original: Original, category: Category, model: str) -> PerturbScriptRequest:
    return PerturbScriptRequest(
        task=original.request.task,
        script=Script(steps=[Step(text=step) for step in original.steps]),
        category=category.number,
        options=JudgeOptions(model=model),
    )


def inapplicable(original: Original, category: Category) -> str:
    """Why a category cannot be asked for. Empty: it can."""
    if category == Category.BROKEN_CONSTRAINT and not original.request.task.constraints:
        return "the task has no constraint"
    if category in (Category.WRONG_ORDER, Category.MISSING_STEPS) and len(original.steps) < 2:
        return "the script has fewer than 2 steps"
    return ""
