"""Ratings of replies, and preferences between two of them."""

from __future__ import annotations

from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_USER
from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_TASK_PREFERENCE,
    LABEL_TASK_RATING,
    LabelItem,
    LabelText,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.kinds.dialogues import ACED
from gateway.runs.labels.drawn import PREFERENCES, RATINGS, Context, Drawn, LabelledKind, drawn, preference
from gateway.runs.store.tables import sanitize

_RATINGS = frozenset({"rating", f"rating{ACED}"})


def _rating(row: RunResult) -> Drawn | None:
    return drawn(row) if row.measure in _RATINGS else None


def _build(one: Drawn, sample: RunSample, _: Context) -> LabelItem | None:
    result = sample.dialogue
    replies = {sanitize(reply.model): reply.text for reply in result.replies}
    models = [one.model, *([one.opponent] if one.opponent else [])]
    if any(model not in replies for model in models):
        return None
    titles = ("First reply", "Second reply") if one.opponent else ("Reply",)
    shown = [LabelText(title=title, text=replies[model]) for title, model in zip(titles, models, strict=True)]
    script = result.script
    told = [
        f"{'user' if each.speaker == SPEAKER_USER else 'simulator'}: {each.text}"
        for each in script.utterances
    ]
    question = "How well does the reply simulate the system, from 1 (worst) to 10 (best)?"
    return LabelItem(
        item="/".join([script.id or f"sample {one.sample}", *models]),
        question="Which reply simulates the system better?" if one.opponent else question,
        texts=[
            LabelText(title="Task", text=script.task.description),
            LabelText(title="Dialogue", steps=told),
            *shown,
        ],
        choices=PREFERENCES if one.opponent else RATINGS,
    )


LABELLED = LabelledKind({LABEL_TASK_RATING: _rating, LABEL_TASK_PREFERENCE: preference}, _build)
