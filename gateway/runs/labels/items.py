"""Items as annotators see them: a question, the judged texts with their context, and choices."""

from __future__ import annotations

from collections.abc import Mapping

from dramaturg.api.evaluation.v1.label_service_pb2 import LabelItem, LabelTask
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.judge import criteria
from dramaturg.judge.conversations import unit_name
from dramaturg.judge.roles import JudgeRole
from gateway.runs.labels.choices import MAX_CHOICES
from gateway.runs.labels.drawn import Context, Drawn, LabelledKind

_QUESTIONS = {
    criteria.NO_MISSING_STEPS: "Does the script have every step that the goal needs?",
    criteria.NO_REDUNDANT_STEPS: "Does every step serve the goal?",
    criteria.NO_DUPLICATE_STEPS: "Is the script free of steps that repeat another one?",
    criteria.EXECUTABLE: "Does every step agree with common sense?",
    criteria.SATISFIES_CONSTRAINTS: "Does the script respect every constraint of the task?",
    criteria.COMPLETES_GOAL: "Does following the script reach the goal?",
    criteria.ORDER_CORRECT: "Does no step come before a step that it depends on?",
}


class ItemBuilder:
    """Builds the items of samples.

    Args:
        kind: The kind of the run.
        task: The question.
        roles: The roles of judges, which define criteria.
    """

    def __init__(self, kind: LabelledKind, task: LabelTask.ValueType, roles: Mapping[str, object]) -> None:
        self._kind = kind
        self._task = task
        self._questions = dict(_QUESTIONS)
        for role in roles.values():
            if isinstance(role, JudgeRole):
                self._questions |= role.definitions

    def build(self, drawn: Drawn, sample: RunSample, request: bytes) -> LabelItem | None:
        """The item of a judgement. None: the sample has no text for it.

        Args:
            drawn: The judgement.
            sample: Its sample.
            request: The request of the sample, where the kind reads it.
        """
        if sample.WhichOneof("result") is None:
            return None
        item = self._kind.build(drawn, sample, Context(self._task, self._questions, request))
        if item is None or not 1 < len(item.choices) <= MAX_CHOICES:
            return None
        item.sample_index, item.candidate_id = drawn.sample, drawn.candidate_id
        if drawn.unit is not None:
            name = unit_name(drawn.unit)
            item.item = f"{item.item}/{name}"
            item.question = f"{name} alone, with all that precedes it: {item.question}"
            item.MergeFrom(LabelItem(turn_index=drawn.unit.turn_index, call_index=drawn.unit.call_index))
        return item
