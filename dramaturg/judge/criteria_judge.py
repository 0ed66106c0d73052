"""Judges candidates by criteria with a language model: one prompt and one model call for each candidate."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import FINDING_KIND_MISSING_STEP, Assessment, Span, Verdict
from dramaturg.judge import VERSION
from dramaturg.judge import criteria as names
from dramaturg.judge.answers import UNPARSABLE, Verdicts, VerdictsForm
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.excerpts import (
    ExcerptLimits,
    candidate_excerpt,
    constraints_excerpt,
    goal_excerpt,
    notices,
    reference_excerpt,
)
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Answer, Asker, Question
from dramaturg.judge.prompts import CRITERIA as CRITERIA_FILE
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.provenance import merge
from dramaturg.judge.quotes import TEXT, Sources
from dramaturg.judge.shapes import MOST_CHARACTERS, Shape, Text
from dramaturg.judge.verdicts import abstained
from dramaturg.service.errors import ServiceError

VerdictList = TypeVar("VerdictList", bound=list[Verdict])

GOAL, CONSTRAINTS, CANDIDATE, REFERENCE = "goal", "constraints", "candidate", "reference"
"""The placeholders of the parts of a request. A part without placeholder is not shown."""
CRITERIA = "criteria"
"""The placeholder of the definitions of the criteria."""
SEVERITY = "severity"
"""The part of a prompt that says how grave a fault is. It follows the definitions of the criteria."""
ACTIONS: Mapping[str, Shape] = {
    "actions": Text("what each step does: 1: ..., 2: ..., 3: ...", most=MOST_CHARACTERS)
}
"""The reasoning of judges that look at the steps of a script one by one."""
_MOST_QUOTES = 50
_MOST_QUOTED = 200


@dataclass(frozen=True)
class CriteriaQuestion:
    """The question of a judge of criteria."""

    prompt: str
    """The name of the prompt. Definitions of criteria that it does not have itself are those of the shared
    file.
    """
    shown: Sequence[str] = ()
    """The placeholders of the shown parts of a request, besides the goal and the candidate."""
    reasoning: Mapping[str, Shape] = field(default_factory=dict)
    """The members of the answer that precede the verdicts, for example ``ACTIONS``."""

    def load(self, library: PromptLibrary, criteria: Sequence[str], *, graded: bool = False) -> Prompt:
        """Loads the prompt.

        Args:
            library: The prompts.
            criteria: The criteria.
            graded: Whether it asks how grave each fault is.

        Raises:
            PromptError: The prompt cannot be used.
        """
        return library.load(
            self.prompt,
            fixed=(CRITERIA, ANSWER_PLACEHOLDER),
            content=(GOAL, CANDIDATE, *self.shown),
            parts=(*criteria, SEVERITY) if graded else criteria,
            parts_from=CRITERIA_FILE,
        )


@dataclass(frozen=True, eq=False)
class CriteriaJudge:
    """A judge of texts that asks a model for one verdict on each criterion (``BatchJudge``).

    One call to GenerationService covers all candidates of a request. Without constraints,
    satisfies_constraints is an abstention and not a part of the question. A failed question or an unusable
    answer is an abstention from every criterion of that candidate, with the reason. Where an answer lacks
    some of the criteria, a second question asks for these alone.
    """

    name: str
    """The implementation's name."""
    description: str
    """A description in one sentence."""
    criteria: Sequence[str]
    """Some of ABSEval's criteria."""
    asker: Asker
    """Asks the model."""
    limits: ExcerptLimits
    """The maximum lengths of the parts of a request in the prompt."""
    prompt: Prompt
    """The prompt, with a part for each criterion. It shows only the parts that it has placeholders for."""
    reasoning: Mapping[str, Shape] = field(default_factory=dict)
    """The members of the answer that precede the verdicts, for example ``ACTIONS``."""
    comparing_prompt: Prompt | None = None
    """The prompt for requests with a reference. None: the same prompt."""
    comparison: Mapping[str, Shape] = field(default_factory=dict)
    """The members that precede the verdicts in answers to ``comparing_prompt``."""
    graded: bool = False
    """Whether findings have a severity: the prompts then have the part ``SEVERITY``."""
    version: str = VERSION
    """Its version."""
    capabilities: Sequence[str] = (CALLS_MODELS,)
    """The capabilities: it spends tokens."""

    async def judge_batch(
        self, items: Sequence[JudgeItem]
    ) -> AsyncGenerator[tuple[JudgeItem, Assessment | ServiceError]]:
        """Judges candidates with one question each, and a second one for criteria that its answer lacks."""
        batch = items[0].batch
        constrained = bool(batch.task.constraints)
        asked = [name for name in batch.criteria if constrained or name != names.SATISFIES_CONSTRAINTS]
        if not asked:
            for item in items:
                yield item, _assessment(Verdicts(), Provenance(), batch.criteria)
            return
        questions = self._questions(items, asked)
        incomplete: list[_Incomplete] = []
        async with aclosing(self.asker.ask_all(questions, batch.options)) as answers:
            async for index, answer in answers:
                if isinstance(answer, ServiceError):
                    yield items[index], answer
                    continue
                verdicts = verdicts_of(questions[index], answer, Verdicts)
                _quote_steps(verdicts, items[index])
                lacking = [one.criterion for one in verdicts if one.abstain_reason == UNPARSABLE]
                if answer.abstention is None and 0 < len(lacking) < len(asked):
                    incomplete.append(_Incomplete(items[index], verdicts, answer.provenance, lacking))
                else:
                    yield items[index], _assessment(verdicts, answer.provenance, batch.criteria)
        async for item, completed in self._completed(incomplete):
            yield item, completed

    async def _completed(
        self, incomplete: Sequence[_Incomplete]
    ) -> AsyncGenerator[tuple[JudgeItem, Assessment]]:
        """Asks once more for the criteria that answers lack. What stays without an answer abstains."""
        if not incomplete:
            return
        batch = incomplete[0].item.batch
        questions = [self._questions([one.item], one.lacking)[0] for one in incomplete]
        async with aclosing(self.asker.ask_all(questions, batch.options)) as answers:
            async for index, answer in answers:
                one = incomplete[index]
                if isinstance(answer, ServiceError):
                    yield one.item, _assessment(one.verdicts, one.provenance, batch.criteria)
                    continue
                found = {v.criterion: v for v in verdicts_of(questions[index], answer, Verdicts)}
                _quote_steps(found.values(), one.item)
                verdicts = [found.get(verdict.criterion, verdict) for verdict in one.verdicts]
                provenance = merge([one.provenance, answer.provenance])
                yield (
                    one.item,
                    _assessment(Verdicts(verdicts, one.verdicts.step_notes), provenance, batch.criteria),
                )

    def _questions(self, items: Sequence[JudgeItem], asked: Sequence[str]) -> Sequence[Question[Verdicts]]:
        batch = items[0].batch
        comparing = self.comparing_prompt if batch.reference.steps else None
        prompt = comparing or self.prompt
        shared = {
            GOAL: goal_excerpt(batch.task, self.limits),
            CONSTRAINTS: constraints_excerpt(batch.task, self.limits),
            REFERENCE: reference_excerpt(batch.reference, self.limits),
        }
        shared = {name: excerpt for name, excerpt in shared.items() if name in prompt.placeholders}
        reasoning = self.comparison if comparing else self.reasoning
        definitions = prompt.definitions(asked)
        values = {CRITERIA: f"{definitions}\n\n{prompt.parts[SEVERITY]}" if self.graded else definitions}
        constraints = list(batch.task.constraints)
        return [
            Question(
                prompt,
                {**shared, CANDIDATE: candidate_excerpt(item.candidate, self.limits)},
                VerdictsForm.of(
                    asked,
                    step_count=len(item.candidate.steps),
                    constraints=constraints,
                    reasoning=reasoning,
                    graded=self.graded,
                ),
                values,
            )
            for item in items
        ]


@dataclass(frozen=True, eq=False)
class _Incomplete:
    """A candidate whose answer lacks some of the criteria."""

    item: JudgeItem
    verdicts: Verdicts
    provenance: Provenance
    lacking: Sequence[str]


def verdicts_of(
    question: Question[VerdictList], answer: Answer[VerdictList], make: type[VerdictList]
) -> VerdictList:
    """The verdicts of an answer: abstentions where it has none, with notices of what the model was not shown.

    Args:
        question: The question, whose form is a ``VerdictsForm``.
        answer: The answer.
        make: The type of the verdicts.
    """
    if answer.abstention is not None:
        form: object = question.form
        assert isinstance(form, VerdictsForm)
        return make(abstained(name, *answer.abstention) for name in form.sections)
    verdicts = make() if answer.value is None else answer.value
    if notice := notices(question.shown):
        for verdict in verdicts:
            verdict.rationale = f"{verdict.rationale} {notice}".strip()
    return verdicts


def _quote_steps(verdicts: Iterable[Verdict], item: JudgeItem) -> None:
    """Adds the first words of the steps at fault to findings, where they stand so in the text.

    The model names steps by number, so that it need not write their words.
    """
    named = [
        (one, index)
        for verdict in verdicts
        for one in verdict.findings
        if one.kind != FINDING_KIND_MISSING_STEP
        for index in one.step_indices
    ]
    if not named:
        return
    sources = Sources(item.task, [item.candidate.text], (), "")
    for one, index in named[:_MOST_QUOTES]:
        span = Span(part=TEXT, quote=item.candidate.steps[index][:_MOST_QUOTED])
        sources.locate(span)
        if span.found:
            one.spans.add(part=span.part, quote=span.quote)


def _assessment(verdicts: Verdicts, provenance: Provenance, criteria: Sequence[str]) -> Assessment:
    """Returns the assessment. Criteria left out for lack of constraints are abstentions."""
    assessment = Assessment(verdicts=verdicts, provenance=provenance, step_notes=verdicts.step_notes)
    if len(verdicts) == len(criteria):
        return assessment
    unasked = abstained(
        names.SATISFIES_CONSTRAINTS,
        verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE,
        "The task has no constraints.",
    )
    assessment.verdicts.append(unasked)
    return assessment
