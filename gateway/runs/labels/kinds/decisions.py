"""Decisions, once for all models."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_CHOICE, LabelItem
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from gateway.runs.labels.drawn import CHOICES, Context, Drawn, LabelledKind, decision_texts


def _decision(row: RunResult) -> Drawn:
    return Drawn(row.sample_index, "", "", "", "", None)


def _build(drawn: Drawn, sample: RunSample, __: Context) -> LabelItem:
    one = sample.decision.decision
    return LabelItem(
        item=one.id or f"sample {drawn.sample}",
        question="Which option does the person choose?",
        texts=decision_texts(one.scenario, one.goal, one.option_1, one.option_2),
        choices=CHOICES,
    )


LABELLED = LabelledKind({LABEL_TASK_CHOICE: _decision}, _build, unjudged=True)
