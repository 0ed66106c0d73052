"""Texts by the criteria of a rubric."""

from __future__ import annotations

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
from gateway.runs.labels.choices import VERDICTS, context_text, item_id, task_texts
from gateway.runs.labels.drawn import Context, Drawn, LabelledKind, drawn, verdict
from gateway.runs.store.tables import sanitize


def _rating(row: RunResult) -> Drawn | None:
    return None if row.outcome in {OUTCOME_PASS, OUTCOME_FAIL} else drawn(row, criterion=row.measure)


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
            LabelText(title="Text", text=found.text),
        ],
        choices=[str(score) for score in scale] if rule.HasField("scale") else VERDICTS,
    )


def _question(rule: RubricCriterion) -> str:
    parts = [rule.description]
    parts += [f"{word}: {text}" for word, text in (("Pass", rule.passes), ("Fail", rule.fails)) if text]
    parts += [f"{anchor.value}: {anchor.meaning}" for anchor in rule.scale.anchors]
    return "\n".join(part for part in parts if part)


LABELLED = LabelledKind({LABEL_TASK_VERDICT: verdict, LABEL_TASK_RATING: _rating}, _build)
