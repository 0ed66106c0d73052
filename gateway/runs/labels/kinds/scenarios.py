"""Written scenarios: their review, and the choices in them."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_TASK_CHOICE,
    LABEL_TASK_REVIEW,
    LabelItem,
    LabelText,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.kinds.scenarios import TARGETS
from gateway.runs.labels.drawn import (
    CHOICES,
    REVIEWS,
    Context,
    Drawn,
    LabelledKind,
    decision_texts,
    drawn,
    verdict,
)
from gateway.runs.store.tables import sanitize


def _scenario(row: RunResult) -> Drawn | None:
    """The scenario of a verdict, which is the only one on it: its item has no criterion."""
    return drawn(row) if verdict(row) is not None else None


def _build(one: Drawn, sample: RunSample, context: Context) -> LabelItem | None:
    result = sample.scenarios
    found = next((each for each in result.scenarios if sanitize(each.id) == one.candidate_id), None)
    if found is None or not found.scenario:
        return None
    brief = result.brief
    texts = decision_texts(found.scenario, brief.goal, brief.option_1, brief.option_2)
    if context.task == LABEL_TASK_CHOICE:
        question, choices = "Which option does the person choose?", list(CHOICES)
    else:
        question = (
            "How hard is the choice of the option that the scenario is written for? "
            "Reject a scenario of no use."
        )
        choices = list(REVIEWS)
        texts.append(LabelText(title="Written for", text=TARGETS.get(found.target, "").replace("-", " ")))
    return LabelItem(
        item=f"{result.id or f'sample {one.sample}'}/{found.id}",
        question=question,
        texts=texts,
        choices=choices,
    )


LABELLED = LabelledKind({LABEL_TASK_REVIEW: _scenario, LABEL_TASK_CHOICE: _scenario}, _build)
