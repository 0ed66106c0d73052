"""Judges a candidate with a language model: one prompt, one call, one verdict for each criterion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.judge import criteria as names
from dramaturg.judge.answers import VerdictsForm
from dramaturg.judge.excerpts import (
    Excerpt,
    ExcerptLimits,
    candidate_excerpt,
    constraints_excerpt,
    goal_excerpt,
    notices,
    reference_excerpt,
)
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker, ask_or_abstain
from dramaturg.judge.prompts import Prompt
from dramaturg.judge.protocols import ScriptRequest
from dramaturg.judge.steps import parse_candidate
from dramaturg.judge.verdicts import abstained, in_order

GOAL, CONSTRAINTS, CANDIDATE, REFERENCE = "goal", "constraints", "candidate", "reference"
"""The placeholders for the parts of a request. A prompt that lacks one does not show that part."""
CRITERIA = "criteria"
"""The placeholder for what the criteria asked for mean."""
ALWAYS = (GOAL, CANDIDATE, CRITERIA, ANSWER_PLACEHOLDER)
"""The placeholders that every prompt has."""


class CriteriaJudge:
    """Judges candidates by criteria.

    Args:
        asker: Asks the model.
        limits: How much of a request is shown to it.
    """

    def __init__(self, asker: Asker, limits: ExcerptLimits) -> None:
        self._asker = asker
        self._limits = limits

    async def judge(self, request: ScriptRequest, prompt: Prompt, criteria: Sequence[str]) -> Assessment:
        """Judges one candidate, in one model call at most.

        Without constraints satisfies_constraints is not asked for and abstains. A model that cannot be
        asked, or whose answer is of no use, makes every criterion abstain with the reason.

        Args:
            request: The request, with a candidate that is not empty. Only what the prompt has a placeholder
                for is shown.
            prompt: The prompt, with a part for each of the criteria.
            criteria: Some of ABSEval's criteria, in the order of the verdicts.

        Raises:
            ServiceError: The model's configuration keeps the judge from judging at all.
        """
        read = parse_candidate(request.candidate)
        constraints = list(request.task.constraints)
        asked = [name for name in criteria if constraints or name != names.SATISFIES_CONSTRAINTS]
        excerpts = {
            GOAL: goal_excerpt(request.task, self._limits),
            CONSTRAINTS: constraints_excerpt(request.task, self._limits),
            CANDIDATE: candidate_excerpt(request.candidate, read, self._limits),
            REFERENCE: reference_excerpt(request.reference, self._limits),
        }
        shown = {name: excerpt for name, excerpt in excerpts.items() if name in prompt.placeholders}
        verdicts: list[Verdict] = []
        provenance = Provenance()
        if asked:
            form = VerdictsForm.of(asked, step_count=len(read.steps), constraints=constraints)
            verdicts, provenance = await self._ask(request, prompt, form, shown)
        if len(asked) < len(criteria):
            verdicts.append(_without_constraints())
        return Assessment(verdicts=in_order(verdicts, criteria), provenance=provenance, reading=read.reading)

    async def _ask(
        self,
        request: ScriptRequest,
        prompt: Prompt,
        form: VerdictsForm,
        shown: Mapping[str, Excerpt],
    ) -> tuple[list[Verdict], Provenance]:
        values = {CRITERIA: prompt.part(list(form.sections))}
        answer = await ask_or_abstain(self._asker, prompt, shown, form, request.options, values)
        if answer.abstention is not None:
            return [abstained(name, *answer.abstention) for name in form.sections], answer.provenance
        notice = notices(shown)
        verdicts = answer.value or []
        if notice:
            for verdict in verdicts:
                verdict.rationale = f"{verdict.rationale} {notice}".strip()
        return verdicts, answer.provenance


def _without_constraints() -> Verdict:
    return abstained(
        names.SATISFIES_CONSTRAINTS,
        verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE,
        "The task has no constraints.",
    )
