"""The view of texts judged by a rubric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion, TextResult, TextsResult
from dramaturg.judge.conversations import image_url, shown_images, turn_texts, unit_name
from dramaturg.judge.quotes import CONTEXT, TEXT
from dramaturg.judge.rules import describe_rule
from dramaturg.judge.verdicts import unit_place
from dramaturg.kinds.texts import score_label
from dramaturg.report.sample_view import Block, JudgementView, SampleView, StepView, SubjectView
from dramaturg.report.views import confidence, marks, panel_disagreement, provenances, truncate, verdict
from dramaturg.results.names import reason_name

_OUTCOMES = {verdict_pb2.OUTCOME_FAIL: "fails", verdict_pb2.OUTCOME_ABSTAIN: "not judged"}


def view(index: int, result: TextsResult) -> SampleView:
    """The task, the rubric, and each text with its verdicts."""
    task = result.task
    facts = [("topic", task.topic)] if task.topic else []
    facts += [("constraint", constraint) for constraint in task.constraints]
    return SampleView(
        index=index,
        title=truncate(task.goal),
        sample_id=task.id,
        facts=facts,
        blocks=[
            Block(
                "Rubric", steps=[StepView(truncate(_criterion(one))) for one in result.criteria], open=True
            ),
            *_blocks("Instructions", [task.instructions] if task.instructions else ()),
            *_context("Context", task.context, [item for one in result.texts for item in one.verdicts]),
            *(
                block
                for one in result.texts
                for block in _context(
                    f"Context of {one.text_id}", one.context, one.verdicts, len(task.context)
                )
            ),
        ],
        subjects=[_text(one, {rule.id: rule for rule in result.criteria}) for one in result.texts],
        tags=sorted(set(result.tags.items()) - set(facts)),
        filters=[("topic", task.topic)] if task.topic else [],
        disagreement=panel_disagreement(result.texts),
    )


def _blocks(title: str, texts: Iterable[str]) -> Iterator[Block]:
    """A block of texts; none without any."""
    if steps := [StepView(truncate(text)) for text in texts]:
        yield Block(title, steps=steps)


def _context(
    title: str, documents: Sequence[Document], verdicts: Iterable[Verdict], first: int = 0
) -> Iterator[Block]:
    """A block of documents with the words that findings rest on; none without any.

    Args:
        title: The title.
        documents: The documents.
        verdicts: The verdicts with the findings.
        first: The index of the first document in the context of a text.
    """
    verdicts = list(verdicts)
    steps = []
    for index, one in enumerate(documents):
        head = "".join(f"{line}\n" for line in (one.title, one.source) if line)
        found = marks(verdicts, CONTEXT, first + index)
        moved = [(start + len(head), end + len(head), text) for start, end, text in found]
        steps.append(StepView(truncate(head + one.text), marks=moved))
    if steps:
        yield Block(title, steps=steps)


def _criterion(one: RubricCriterion) -> str:
    parts = [one.description]
    if one.HasField("rule"):
        parts.append(describe_rule(one.rule))
    parts += [f"{word}: {text}" for word, text in (("Pass", one.passes), ("Fail", one.fails)) if text]
    if one.HasField("scale"):
        parts.append(f"From {one.scale.lowest} to {one.scale.highest}.")
        parts += [f"{anchor.value}: {anchor.meaning}" for anchor in one.scale.anchors]
    return f"{one.id}: {' '.join(part for part in parts if part)}"


def _text(text: TextResult, rubric: Mapping[str, RubricCriterion]) -> SubjectView:
    judges: dict[str, list[str]] = {}
    for assessed in text.assessments:
        for item in assessed.assessment.verdicts:
            judges.setdefault(item.criterion, []).append(assessed.judge)
    votes = [
        f"{assessed.judge} on {item.criterion}: {_judgement(item, rubric).label}"
        + (f" {reason_name(item.abstain_reason)}" if item.abstain_reason else "")
        + (f" - {item.rationale}" if item.rationale else "")
        for assessed in text.assessments
        for item in assessed.assessment.verdicts
        if len(judges[item.criterion]) > 1
    ]
    turns = turn_texts(text.conversation)
    failure = [f"failure of the model: {reason_name(text.failure_reason)}"] if text.failure_reason else []
    return SubjectView(
        title=text.text_id,
        model=text.model,
        text="" if turns else truncate(text.text),
        marks=() if turns else marks(text.verdicts, TEXT),
        steps=[
            StepView(
                truncate(turn),
                marks=marks(text.verdicts, TEXT, index),
                faults=_faults(text.verdicts, index),
                images=[*map(image_url, shown_images(text.conversation.turns[index]))],
            )
            for index, turn in enumerate(turns)
        ],
        notes=[*failure, *votes],
        judgements=[
            _judgement(item, rubric, ", ".join(judges.get(item.criterion, ()))) for item in text.verdicts
        ],
        provenances=provenances(assessed.assessment.provenance for assessed in text.assessments),
    )


def _faults(verdicts: Iterable[Verdict], turn: int) -> list[str]:
    """What a turn and its calls do not pass, as text."""
    return [
        truncate(f"{item.criterion}: {name}: {_OUTCOMES[one.outcome]}. {one.rationale}".rstrip())
        for item in verdicts
        for one in item.units
        if one.turn_index == turn and one.outcome in _OUTCOMES
        for name in [unit_name(unit_place(one))]
    ]


def _judgement(item: Verdict, rubric: Mapping[str, RubricCriterion], judge: str = "") -> JudgementView:
    if item.outcome != verdict_pb2.OUTCOME_SCORED or item.criterion not in rubric:
        return verdict(item, judge, "turn")
    return JudgementView(
        measure=item.criterion,
        outcome="number",
        label=score_label(item.score, rubric[item.criterion].scale),
        judge=judge,
        confidence=confidence(item),
        rationale=truncate(item.rationale),
    )
