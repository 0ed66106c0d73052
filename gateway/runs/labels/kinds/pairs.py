"""Preferences between two texts."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_PREFERENCE, LabelItem, LabelText
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from gateway.runs.labels.drawn import PREFERENCES, Context, Drawn, LabelledKind, preference


def _build(one: Drawn, _: RunSample, context: Context) -> LabelItem:
    pair = EvaluatePairsRequest.FromString(context.request)
    texts = [("Instruction", pair.instruction), ("Source", pair.source)]
    texts += [("First text", pair.first.text), ("Second text", pair.second.text)]
    return LabelItem(
        item=pair.id or f"sample {one.sample}",
        question="Which text is better?",
        texts=[LabelText(title=title, text=text) for title, text in texts if text],
        choices=PREFERENCES,
    )


LABELLED = LabelledKind({LABEL_TASK_PREFERENCE: preference}, _build, reads_request=True)
