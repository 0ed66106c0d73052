"""The rubric judge with a language model: one call for each text, on all criteria.

Without a language model the rubric judge abstains from every criterion. The rule judge decides what needs
none: the rules of a rubric (``dramaturg.judge.rules``).
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Finding, Span, Verdict
from dramaturg.judge import VERSION, roles
from dramaturg.judge.answers import VerdictsForm
from dramaturg.judge.batches import JudgeBatch, JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.conversations import turn_texts
from dramaturg.judge.criteria_judge import verdicts_of
from dramaturg.judge.excerpts import (
    Excerpt,
    ExcerptLimits,
    constraints_excerpt,
    context_excerpt,
    goal_excerpt,
    instructions_excerpt,
)
from dramaturg.judge.fence import fence, fence_items, visible
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker, Question
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import ANY_CRITERION, CALLS_MODELS, CONTEXT, CONVERSATION, TOOL_CALLS
from dramaturg.judge.quotes import PARTS
from dramaturg.judge.quotes import TEXT as TEXT_PART
from dramaturg.judge.sections import MALFORMED, OUTCOME, PASS, UNSURE, Section, stated_outcome, stated_text
from dramaturg.judge.settings import OfflineSettings
from dramaturg.judge.shapes import Choice, ListOf, Record, Text
from dramaturg.judge.spec import JudgeSpec
from dramaturg.judge.verdicts import abstained, failed, finding, passed, scored
from dramaturg.service.errors import ServiceError
from services.judging.reasoned_number import Scale

_OFFLINE_REASON = "Without a language model, only criteria with a rule are judged."
_UNGRADED = verdict_pb2.SEVERITY_UNSPECIFIED
_SEVERITIES = {
    "minor": verdict_pb2.SEVERITY_MINOR,
    "major": verdict_pb2.SEVERITY_MAJOR,
    "critical": verdict_pb2.SEVERITY_CRITICAL,
}

SCORED = "scored"
"""The word for a criterion that has a score."""

_MOST_QUOTES = 5
_QUOTES = ListOf(
    Record(
        {
            "part": Choice(PARTS, accepts_any=True),
            "quote": Text("words of that part that show it, copied exactly"),
            "problem": Text("what is wrong with them", optional=True),
            "severity": Choice(tuple(_SEVERITIES), accepts_any=True),
        }
    ),
    optional=True,
    most=_MOST_QUOTES,
)
_REASON = Text("what in the text meets the criterion, and what does not", optional=True)
_STATE = Choice((SCORED, UNSURE))


class OfflineRubricJudge:
    """Abstains from all criteria."""

    name = "offline-rubric-judge"
    version = VERSION
    description = "Abstains: without a language model, only criteria with a rule are judged."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (ANY_CRITERION, CONTEXT)

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges a text."""
        return Assessment(
            verdicts=[
                abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, _OFFLINE_REASON)
                for criterion in item.criteria
            ]
        )


@dataclass(frozen=True)
class VerdictSection:
    """A section with a reason, the words that a failure rests on, and a verdict."""

    @property
    def shape(self) -> Record:
        """Reason, faults, verdict."""
        return Record({"reason": _REASON, "faults": _QUOTES, "verdict": OUTCOME})

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads the section."""
        outcome, reason = stated_outcome(value), stated_text(value, "reason")
        if outcome is None:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, MALFORMED)
        if outcome == UNSURE:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE, reason)
        if outcome == PASS:
            return passed(criterion, rationale=reason)
        return failed(criterion, _faults(value.get("faults")), rationale=reason)


def _faults(stated: Any) -> Iterator[Finding]:
    """The faults of an answer that quote words, each with its words."""
    for one in stated[:_MOST_QUOTES] if isinstance(stated, list) else ():
        quote = stated_text(one, "quote")
        if not quote:
            continue
        part = one.get("part")
        severity = one.get("severity")
        yield finding(
            verdict_pb2.FINDING_KIND_CRITERION_NOT_MET,
            stated_text(one, "problem"),
            spans=[Span(part=part if part in PARTS else TEXT_PART, quote=quote)],
            severity=_SEVERITIES.get(severity if isinstance(severity, str) else "", _UNGRADED),
        )


class _ScoreRecord(Record):
    """A record of which a score alone is enough, and the verdict "unsure" without one."""

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        schema = super().schema(accepted=accepted)
        if accepted:
            is_unsure = {"properties": {"verdict": {"const": UNSURE}}, "required": ["verdict"]}
            schema |= {"required": [], "anyOf": [{"required": ["score"]}, is_unsure]}
        return schema


@dataclass(frozen=True)
class ScoreSection:
    """A section with a reason, whether there is a score, and the score. It is a whole number on the scale."""

    lowest: int
    highest: int

    @property
    def shape(self) -> Record:
        """Reason, state, score."""
        hint = f"the score, a whole number from {self.lowest} to {self.highest}"
        scale = Scale(hint, self.lowest, self.highest)
        return _ScoreRecord({"reason": _REASON, "verdict": _STATE, "score": scale})

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads the section."""
        state = value.get("verdict") if isinstance(value, dict) else None
        reason = stated_text(value, "reason")
        if state == UNSURE:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE, reason)
        score = value.get("score") if state in (SCORED, None) and isinstance(value, dict) else None
        # In Python, True and False are ints.
        if not isinstance(score, int) or isinstance(score, bool):
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, MALFORMED)
        if not self.lowest <= score <= self.highest:
            off = f"The score {score} is not from {self.lowest} to {self.highest}."
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, off)
        return scored(criterion, score, rationale=reason)


def rubric_form(criteria: Sequence[str], scales: Sequence[tuple[int, int] | None]) -> VerdictsForm:
    """The form for a rubric.

    Args:
        criteria: The ids, in order.
        scales: The lowest and highest score of each; None for one that passes or fails.
    """
    return _form(tuple(criteria), tuple(scales))


# Cached: the rows of a run have the same rubric. Schemas are cached by the identity of the shape.
@lru_cache(maxsize=256)
def _form(criteria: tuple[str, ...], scales: tuple[tuple[int, int] | None, ...]) -> VerdictsForm:
    sections: dict[str, Section] = {
        name: VerdictSection() if scale is None else ScoreSection(*scale)
        for name, scale in zip(criteria, scales, strict=True)
    }
    return VerdictsForm(sections)


CRITERIA = "criteria"
"""The placeholder of the rubric. The caller's criteria are instructions, not material."""
GOAL, CONSTRAINTS, REFERENCE, TEXT = "goal", "constraints", "reference", "text"
DOCUMENTS, INSTRUCTIONS = "context", "instructions"
"""The placeholders of the parts of a request."""

_ID = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_NAMELESS = "The id of this criterion is not in lower snake case."


class LlmRubricJudge:
    """Asks a model for one verdict or score on each criterion (``BatchJudge``).

    One call to GenerationService covers all texts of a request. A failed question or an unusable answer is an
    abstention from every criterion of that text, with the reason.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: The maximum lengths of the parts of a request in the prompt.
    """

    name: str = "llm-rubric-judge"
    version: str = VERSION
    description: str = "Has a language model judge texts by the criteria of the request."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (
        CALLS_MODELS,
        ANY_CRITERION,
        CONTEXT,
        CONVERSATION,
        TOOL_CALLS,
    )

    def __init__(self, asker: Asker, library: PromptLibrary, limits: ExcerptLimits) -> None:
        self._asker = asker
        self._prompt = library.load(
            "judge_by_rubric",
            fixed=(CRITERIA, ANSWER_PLACEHOLDER),
            content=(GOAL, CONSTRAINTS, INSTRUCTIONS, REFERENCE, DOCUMENTS, TEXT),
        )
        self._limits = limits

    async def judge_batch(
        self, items: Sequence[JudgeItem]
    ) -> AsyncGenerator[tuple[JudgeItem, Assessment | ServiceError]]:
        """Judges texts with one model call each."""
        batch = items[0].batch
        asked = [name for name in batch.criteria if _ID.fullmatch(name)]
        if not asked:
            for item in items:
                yield item, _assessment(batch, [], Provenance())
            return
        questions = self._questions(items, asked)
        async with aclosing(self._asker.ask_all(questions, batch.options)) as answers:
            async for index, answer in answers:
                if isinstance(answer, ServiceError):
                    yield items[index], answer
                else:
                    yield (
                        items[index],
                        _assessment(batch, verdicts_of(questions[index], answer, list), answer.provenance),
                    )

    def _questions(
        self, items: Sequence[JudgeItem], asked: Sequence[str]
    ) -> Sequence[Question[list[Verdict]]]:
        batch, limits = items[0].batch, self._limits
        scales = [batch.scales.get(name) for name in asked]
        form = rubric_form(asked, [scale and (scale.lowest, scale.highest) for scale in scales])
        shared = {
            GOAL: goal_excerpt(batch.task, limits),
            CONSTRAINTS: constraints_excerpt(batch.task, limits),
            INSTRUCTIONS: instructions_excerpt(batch.task, limits),
            REFERENCE: _reference(batch, limits),
        }
        values = {CRITERIA: "\n\n".join(_definition(batch, name) for name in asked)}
        return [
            Question(
                self._prompt,
                {
                    **shared,
                    DOCUMENTS: context_excerpt(batch.task, item.candidate, limits),
                    TEXT: _judged(item, limits),
                },
                form,
                values,
            )
            for item in items
        ]


def _judged(item: JudgeItem, limits: ExcerptLimits) -> Excerpt:
    """The text, or the turns of the conversation, numbered from 1."""
    candidate = item.candidate
    if candidate.conversation is None:
        return Excerpt((fence("text", candidate.text, limit=limits.candidate),))
    turns = turn_texts(candidate.conversation)
    return Excerpt((fence_items("conversation", "Turn", turns, limit=limits.candidate),))


def _reference(batch: JudgeBatch, limits: ExcerptLimits) -> Excerpt:
    text = "\n".join(step.text for step in batch.reference.steps)
    return Excerpt((fence("reference", text, limit=limits.reference),)) if text else Excerpt(())


def _definition(batch: JudgeBatch, criterion: str) -> str:
    """A criterion in the prompt; its further lines are indented, so that none looks like a criterion."""
    lines = [f"{criterion}: {batch.definitions.get(criterion) or criterion.replace('_', ' ')}"]
    scale = batch.scales.get(criterion)
    if scale is not None:
        lines.append(f"Score from {scale.lowest} (worst) to {scale.highest} (best).")
        ordered = sorted(scale.anchors, key=lambda anchor: -anchor.value)
        lines += [f"{anchor.value}: {anchor.meaning}" for anchor in ordered]
    return visible("\n".join(lines))[0].replace("\n", "\n  ")


def _assessment(batch: JudgeBatch, verdicts: Sequence[Verdict], provenance: Provenance) -> Assessment:
    return Assessment(verdicts=[*verdicts, *_nameless(batch)], provenance=provenance)


def _nameless(batch: JudgeBatch) -> Iterator[Verdict]:
    """Abstains from criteria whose ids cannot be members of an answer."""
    for name in batch.criteria:
        if not _ID.fullmatch(name):
            yield abstained(name, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, _NAMELESS)


SPEC = JudgeSpec(
    role=roles.RUBRIC_JUDGE,
    prompts=Path(__file__).parent / "prompts",
    settings=OfflineSettings,
    llm=lambda model: judge_contract(LlmRubricJudge(model.asker, model.library, model.settings.excerpts)),
    offline=lambda _: judge_contract(OfflineRubricJudge()),
)
