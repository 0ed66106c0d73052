"""Texts by the criteria of a rubric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_TASK_RATING,
    LABEL_TASK_VERDICT,
    LabelItem,
    LabelText,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.judge.verdicts import unit_place
from gateway.runs.labels.drawn import (
    VERDICTS,
    Context,
    Drawn,
    LabelledKind,
    context_text,
    conversation_text,
    drawn,
    item_id,
    task_texts,
    verdict,
)
from gateway.runs.store.tables import sanitize

_VALUES = {OUTCOME_PASS: 1.0, OUTCOME_FAIL: 0.0}


def _verdict(row: RunResult) -> Drawn | None:
    item = verdict(row)
    # Rows of verdicts have a label where they have units: samples need not be read for the others.
    return None if item is None else replace(item, expands=bool(row.label))


def _rating(row: RunResult) -> Drawn | None:
    return None if row.outcome in {OUTCOME_PASS, OUTCOME_FAIL} else drawn(row, criterion=row.measure)


def _units(one: Drawn, sample: RunSample) -> Iterator[Drawn]:
    """The turns or calls that a verdict judges by themselves; the verdict itself where it has none.

    Those that the judge abstained from are left out, unless it abstained from the whole and that was drawn.
    """
    found = [each for each in sample.texts.texts if sanitize(each.text_id) == one.candidate_id]
    verdicts = [each for text in found for each in text.verdicts if sanitize(each.criterion) == one.criterion]
    units = verdicts[0].units if verdicts else ()
    if not units:
        yield one
    for unit in units:
        judged = _VALUES.get(unit.outcome)
        if judged is not None or one.judged is None:
            yield replace(one, judged=judged, unit=unit_place(unit))


def _build(one: Drawn, sample: RunSample, context: Context) -> LabelItem | None:
    result = sample.texts
    rule = next((each for each in result.criteria if sanitize(each.id) == one.criterion), None)
    found = next((each for each in result.texts if sanitize(each.text_id) == one.candidate_id), None)
    if rule is None or found is None or rule.HasField("scale") == (context.task == LABEL_TASK_VERDICT):
        return None
    scale = range(rule.scale.lowest, rule.scale.highest + 1)
    return LabelItem(
        item=item_id(result.task, one.candidate_id),
        criterion=one.criterion,
        question=_question(rule),
        texts=[
            *task_texts(result.task),
            *([context_text(found.context)] if found.context else ()),
            conversation_text(found.conversation)
            if found.HasField("conversation")
            else LabelText(title="Text", text=found.text),
        ],
        choices=[str(score) for score in scale] if rule.HasField("scale") else VERDICTS,
    )


def _question(rule: RubricCriterion) -> str:
    parts = [rule.description]
    parts += [f"{word}: {text}" for word, text in (("Pass", rule.passes), ("Fail", rule.fails)) if text]
    parts += [f"{anchor.value}: {anchor.meaning}" for anchor in rule.scale.anchors]
    return "\n".join(part for part in parts if part)


LABELLED = LabelledKind({LABEL_TASK_VERDICT: _verdict, LABEL_TASK_RATING: _rating}, _build, expand=_units)
