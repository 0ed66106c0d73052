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
from dramaturg.api.common.v1.content_pb2 import Conversation, Image, Part
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Finding, Span, UnitVerdict, Verdict
from dramaturg.api.judging.v1.judge_service_pb2 import (
    CRITERION_UNIT_TOOL_CALL,
    CRITERION_UNIT_TURN,
    CriterionUnit,
)
from dramaturg.judge import VERSION, roles
from dramaturg.judge.answers import VerdictsForm
from dramaturg.judge.batches import JudgeBatch, JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.conversations import Unit, turn_texts, unit_name, unit_words, units_of
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
from dramaturg.judge.protocols import (
    ANY_CRITERION,
    CALLS_MODELS,
    CONTEXT,
    CONVERSATION,
    IMAGES,
    TOOL_CALLS,
)
from dramaturg.judge.quotes import PARTS
from dramaturg.judge.quotes import TEXT as TEXT_PART
from dramaturg.judge.sections import (
    FAIL,
    GRADED,
    MALFORMED,
    OUTCOME,
    PASS,
    UNSURE,
    Section,
    stated_outcome,
    stated_severity,
    stated_text,
)
from dramaturg.judge.shapes import ENTRY_CHARACTERS, Choice, ListOf, Number, Record, Text
from dramaturg.judge.spec import JudgeSpec, OfflineSettings
from dramaturg.judge.verdicts import abstained, failed, finding, of_units, passed, scored
from dramaturg.service.errors import ServiceError
from services.judging.reasoned_number import Scale
from services.judging.rubrics.classifier import ClassifierSettings, open_classifier

_OFFLINE_REASON = "Without a language model, only criteria with a rule are judged."

SCORED = "scored"
"""The word for a criterion that has a score."""

MAX_IMAGES = 20
"""The most images of a conversation: as many as the strictest API takes."""
MAX_IMAGE_BYTES = 10 << 20
"""The most bytes of the images of a conversation."""
_MOST_QUOTES = 5
_QUOTES = ListOf(
    Record(
        {
            "part": Choice(PARTS, accepts_any=True),
            "quote": Text("words of that part that show it, copied exactly", most=ENTRY_CHARACTERS),
            "problem": Text("what is wrong with them", optional=True, most=ENTRY_CHARACTERS),
            **GRADED,
        }
    ),
    optional=True,
    most=_MOST_QUOTES,
)
_NOT_MET = verdict_pb2.FINDING_KIND_CRITERION_NOT_MET
_UNIT_OUTCOMES = {
    PASS: verdict_pb2.OUTCOME_PASS,
    FAIL: verdict_pb2.OUTCOME_FAIL,
    UNSURE: verdict_pb2.OUTCOME_ABSTAIN,
}
_UNIT_REASONS = {UNSURE: verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE}
_LISTS = {CRITERION_UNIT_TURN: "assistant turns", CRITERION_UNIT_TOOL_CALL: "tool calls"}
"""The labels of the lists of units after a conversation."""
_EACH = (
    'Judge each of the "{}" that are listed after the conversation by itself, with all that precedes it: one '
    "entry for each number, in order."
)
"""What a criterion that judges units one by one says in the prompt."""
_MOST_LISTED = 1000
"""The most units that are listed after a conversation."""
_MOST_SHOWN = 200
"""The most characters of a unit in a list. It stands in the conversation as a whole."""
_REASON = Text("what in the text meets the criterion, and what does not", optional=True)
_STATE = Choice((SCORED, UNSURE))


class RubricJudgeSettings(OfflineSettings):
    """Settings of the rubric judge."""

    classifier: ClassifierSettings | None = None
    """A classifier or a reward model, in place of the language model of the backend "llm"."""
    takes_images: bool = False
    """Whether the model takes images. The judge then has the capability "images"; else it abstains from
    conversations with images.
    """


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


def _faults(stated: Any, turns: Sequence[int] = ()) -> Sequence[Finding]:
    """The faults of an answer that quote words, each with its words."""
    return list(_quoted_faults(stated, turns))


def _quoted_faults(stated: Any, turns: Sequence[int]) -> Iterator[Finding]:
    for one in stated[:_MOST_QUOTES] if isinstance(stated, list) else ():
        quote = stated_text(one, "quote")
        if not quote:
            continue
        part = one.get("part")
        yield finding(
            _NOT_MET,
            stated_text(one, "problem"),
            steps=turns,
            spans=[Span(part=part if part in PARTS else TEXT_PART, quote=quote)],
            severity=stated_severity(one),
        )


@dataclass(frozen=True)
class UnitsSection:
    """A section with a reason, faults and a verdict for each turn of the assistant, or for each call.

    An entry names its turn or call by one number: the place in the list of the prompt, from 1. Places of two
    numbers are mixed up by small models.
    """

    units: tuple[Unit, ...]
    """The turns or calls, in the order of the list; one or more."""

    @property
    def shape(self) -> Record:
        """An entry for each number. It depends on the units by their count alone."""
        count = len(self.units)
        number = Number("its number in the list", most=count)
        entry = Record({"number": number, "reason": _REASON, "faults": _QUOTES, "verdict": OUTCOME})
        return Record({"entries": ListOf(entry, least=count, most=count)})

    def parse(self, criterion: str, value: Any) -> Verdict:
        """Reads the section.

        Entries that cannot be read are left out, and so are those with a number that is not in the list and
        all with the same number and different verdicts.
        """
        stated = value.get("entries") if isinstance(value, dict) else None
        judged: dict[int, tuple[str, Any]] = {}
        twofold: set[int] = set()
        for one in stated if isinstance(stated, list) else ():
            number, outcome = self._number(one), stated_outcome(one)
            if number is None or outcome is None:
                continue
            if judged.setdefault(number, (outcome, one))[0] != outcome:
                twofold.add(number)
        units: list[UnitVerdict] = []
        findings: list[Finding] = []
        for number in sorted(judged.keys() - twofold):
            (outcome, entry), place = judged[number], self.units[number - 1]
            reason = stated_text(entry, "reason")
            units.append(
                UnitVerdict(
                    turn_index=place.turn_index,
                    call_index=place.call_index,
                    outcome=_UNIT_OUTCOMES[outcome],
                    abstain_reason=_UNIT_REASONS.get(outcome, verdict_pb2.ABSTAIN_REASON_UNSPECIFIED),
                    rationale=reason,
                )
            )
            if outcome == FAIL:
                findings += _faults(entry.get("faults"), [place.turn_index]) or [
                    finding(_NOT_MET, reason, steps=[place.turn_index])
                ]
        if not units:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, MALFORMED)
        return of_units(criterion, units, findings)

    def _number(self, entry: Any) -> int | None:
        number = entry.get("number") if isinstance(entry, dict) else None
        known = isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= len(self.units)
        return number if known else None


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
    """A section with a reason, the words that cost it score, the score, and whether it stands.

    It is a whole number on the scale.
    """

    lowest: int
    highest: int

    @property
    def shape(self) -> Record:
        """Reason, faults, score, state."""
        hint = f"the score, a whole number from {self.lowest} to {self.highest}"
        scale = Scale(hint, self.lowest, self.highest)
        return _ScoreRecord({"reason": _REASON, "faults": _QUOTES, "score": scale, "verdict": _STATE})

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
        faults = _faults(value.get("faults")) if score < self.highest else ()
        return scored(criterion, score, faults, rationale=reason)


# Cached: the rows of a run have the same rubric.
@lru_cache(maxsize=256)
def rubric_form(
    criteria: tuple[str, ...],
    scales: tuple[tuple[int, int] | None, ...],
    units: tuple[tuple[Unit, ...], ...],
) -> VerdictsForm:
    """The form for a rubric.

    Args:
        criteria: The ids, in order.
        scales: The lowest and highest score of each; None for one that passes or fails.
        units: What each judges one by one. Empty: it judges the whole.
    """
    sections: dict[str, Section] = {}
    for name, scale, places in zip(criteria, scales, units, strict=True):
        if places:
            sections[name] = UnitsSection(places)
        else:
            sections[name] = VerdictSection() if scale is None else ScoreSection(*scale)
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
        takes_images: Whether the model takes images.
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

    def __init__(
        self, asker: Asker, library: PromptLibrary, limits: ExcerptLimits, *, takes_images: bool = False
    ) -> None:
        self._asker = asker
        self._prompt = library.load(
            "judge_by_rubric",
            fixed=(CRITERIA, ANSWER_PLACEHOLDER),
            content=(GOAL, CONSTRAINTS, INSTRUCTIONS, REFERENCE, DOCUMENTS, TEXT),
        )
        self._limits = limits
        if takes_images:
            self.capabilities = (*self.capabilities, IMAGES)

    async def judge_batch(
        self, items: Sequence[JudgeItem]
    ) -> AsyncGenerator[tuple[JudgeItem, Assessment | ServiceError]]:
        """Judges texts with one model call each.

        A criterion on turns or calls is not asked of what has none.
        """
        batch = items[0].batch
        asked: list[JudgeItem] = []
        for item in items:
            if not _criteria_of(item):
                yield item, _assessment(batch, [], Provenance())
            elif problem := _unreadable(item):
                reason = verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
                yield item, Assessment(verdicts=[abstained(name, reason, problem) for name in batch.criteria])
            else:
                asked.append(item)
        questions = self._questions(asked) if asked else []
        async with aclosing(self._asker.ask_all(questions, batch.options)) as answers:
            async for index, answer in answers:
                if isinstance(answer, ServiceError):
                    yield asked[index], answer
                else:
                    yield (
                        asked[index],
                        _assessment(batch, verdicts_of(questions[index], answer, list), answer.provenance),
                    )

    def _questions(self, items: Sequence[JudgeItem]) -> Sequence[Question[list[Verdict]]]:
        batch, limits = items[0].batch, self._limits
        shared = {
            GOAL: goal_excerpt(batch.task, limits),
            CONSTRAINTS: constraints_excerpt(batch.task, limits),
            INSTRUCTIONS: instructions_excerpt(batch.task, limits),
            REFERENCE: _reference(batch, limits),
        }
        return [
            Question(
                self._prompt,
                {
                    **shared,
                    DOCUMENTS: context_excerpt(batch.task, item.candidate, limits),
                    TEXT: _judged(item, limits),
                },
                _form_of(item),
                {CRITERIA: "\n\n".join(_definition(batch, name) for name in _criteria_of(item))},
                _images(item),
            )
            for item in items
        ]


def _criteria_of(item: JudgeItem) -> Sequence[str]:
    """The criteria that a model is asked about.

    Left out are those whose ids cannot be members of an answer, and those on turns or calls without any.
    """
    units = item.batch.units
    return [
        name
        for name in item.batch.criteria
        if _ID.fullmatch(name) and (name not in units or _places(item, units[name]))
    ]


def _places(item: JudgeItem, unit: CriterionUnit.ValueType) -> tuple[Unit, ...]:
    """The turns or calls that a model judges one by one."""
    return tuple(units_of(item.candidate.conversation or Conversation(), unit)[:_MOST_LISTED])


def _form_of(item: JudgeItem) -> VerdictsForm:
    names, scales, units = _criteria_of(item), item.batch.scales, item.batch.units
    ranges = [scales.get(name) for name in names]
    return rubric_form(
        tuple(names),
        tuple(scale and (scale.lowest, scale.highest) for scale in ranges),
        tuple(_places(item, units[name]) if name in units else () for name in names),
    )


def _unreadable(item: JudgeItem) -> str:
    """Why the images of a conversation cannot be shown to a model. Empty: they can, or there are none."""
    for turn, image in _images_of(item):
        if not image.data:
            return f"An image of turn {turn} is an address, which is not read: send the image itself."
    images = [image for _, image in _images_of(item)]
    if len(images) > MAX_IMAGES:
        return f"The conversation has {len(images)} images; this judge takes {MAX_IMAGES}."
    if sum(len(image.data) for image in images) > MAX_IMAGE_BYTES:
        return f"The images have more than {MAX_IMAGE_BYTES >> 20} MiB together."
    return ""


def _images(item: JudgeItem) -> Sequence[Part]:
    """The images of a conversation, each after its number and its turn."""
    return [
        part
        for number, (turn, image) in enumerate(_images_of(item), start=1)
        for part in (Part(text=f"Image {number}, of turn {turn}:"), Part(image=image))
    ]


def _images_of(item: JudgeItem) -> Sequence[tuple[int, Image]]:
    """The images of a conversation with their turns, from 1."""
    conversation = item.candidate.conversation
    return [
        (number, part.image)
        for number, turn in enumerate(conversation.turns if conversation is not None else (), start=1)
        for part in turn.parts
        if part.HasField("image")
    ]


def _judged(item: JudgeItem, limits: ExcerptLimits) -> Excerpt:
    """The text, or the turns of the conversation, numbered from 1."""
    candidate = item.candidate
    if candidate.conversation is None:
        return Excerpt((fence("text", candidate.text, limit=limits.candidate),))
    turns = turn_texts(candidate.conversation)
    judged = fence_items("conversation", "Turn", turns, limit=limits.candidate)
    lists = [
        fence_items(label, "Number", _shown_units(candidate.conversation, places), limit=limits.candidate)
        for unit, label in _LISTS.items()
        if unit in item.batch.units.values() and (places := _places(item, unit))
    ]
    return Excerpt((judged, *lists))


def _shown_units(conversation: Conversation, places: Sequence[Unit]) -> Sequence[str]:
    """The place of each turn or call and its first words, on one line."""
    return [
        f"{unit_name(place)}: {' '.join(unit_words(conversation, place).split())[:_MOST_SHOWN]}"
        for place in places
    ]


def _reference(batch: JudgeBatch, limits: ExcerptLimits) -> Excerpt:
    text = "\n".join(step.text for step in batch.reference.steps)
    return Excerpt((fence("reference", text, limit=limits.reference),)) if text else Excerpt(())


def _definition(batch: JudgeBatch, criterion: str) -> str:
    """A criterion in the prompt; its further lines are indented, so that none looks like a criterion."""
    lines = [f"{criterion}: {batch.definitions.get(criterion) or criterion.replace('_', ' ')}"]
    if unit := batch.units.get(criterion):
        lines.append(_EACH.format(_LISTS[unit]))
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
    settings=RubricJudgeSettings,
    llm=lambda model: judge_contract(
        LlmRubricJudge(
            model.asker,
            model.library,
            model.settings.excerpts,
            takes_images=model.settings.takes_images,
        )
    ),
    offline=lambda _: judge_contract(OfflineRubricJudge()),
    other=lambda settings: (
        open_classifier(settings.classifier) if settings.classifier and settings.backend == "llm" else None
    ),
)
