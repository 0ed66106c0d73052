"""Scripts by criterion."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_VERDICT, LabelItem, LabelText
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from gateway.runs.labels.drawn import VERDICTS, Context, Drawn, LabelledKind, item_id, task_texts, verdict
from gateway.runs.store.tables import sanitize


def _build(one: Drawn, sample: RunSample, context: Context) -> LabelItem | None:
    result = sample.scripts
    found = next(
        (each for each in result.candidates if sanitize(each.candidate_id) == one.candidate_id), None
    )
    if found is None:
        return None
    script = LabelText(title="Script", steps=[step.text for step in found.script.steps])
    return LabelItem(
        item=item_id(result.task, one.candidate_id),
        criterion=one.criterion,
        question=context.questions.get(one.criterion, one.criterion.replace("_", " ")),
        texts=[*task_texts(result.task), script],
        choices=VERDICTS,
    )


LABELLED = LabelledKind({LABEL_TASK_VERDICT: verdict}, _build)
