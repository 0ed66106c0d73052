"""Items as annotators see them: a question, the judged texts with their context, and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_USER
from dramaturg.api.common.v1.script_pb2 import Script, Task
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult
from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_VERDICT, LabelItem, LabelTask, LabelText
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion, TextsResult
from dramaturg.judge import criteria
from dramaturg.judge.roles import JudgeRole
from dramaturg.results.ratings import HIGHEST, LOWEST
from gateway.runs.labels.population import Drawn
from gateway.runs.store.tables import sanitize

VERDICTS = ("PASS", "FAIL")
PREFERENCES = ("first", "tie", "second")
RATINGS = tuple(str(value) for value in range(int(LOWEST), int(HIGHEST) + 1))
MAX_CHOICES = 36
"""The most choices of an item: the number of digits and letters."""

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
    """Builds the items of samples. Names of drawn judgements are compared as the store keeps them.

    Args:
        task: The question.
        roles: The roles of judges, which define criteria.
    """

    def __init__(self, task: LabelTask.ValueType, roles: Mapping[str, object]) -> None:
        self._task = task
        self._questions = dict(_QUESTIONS)
        for role in roles.values():
            if isinstance(role, JudgeRole):
                self._questions |= role.definitions
        self._builders: Mapping[str, Callable[..., LabelItem | None]] = {
            "scripts": self._script,
            "texts": self._text,
            "pair": self._pair,
            "dialogue": self._dialogue,
        }

    def build(self, drawn: Drawn, sample: RunSample, request: bytes) -> LabelItem | None:
        """The item of a judgement. None: the sample has no text for it.

        Args:
            drawn: The judgement.
            sample: Its sample.
            request: The request of the sample.
        """
        kind = sample.WhichOneof("result") or ""
        item = self._builders[kind](drawn, getattr(sample, kind), request) if kind in self._builders else None
        return item if item is not None and 1 < len(item.choices) <= MAX_CHOICES else None

    def _script(self, drawn: Drawn, result: ScriptsResult, _: bytes) -> LabelItem | None:
        found = next(
            (one for one in result.candidates if sanitize(one.candidate_id) == drawn.candidate_id), None
        )
        if found is None:
            return None
        texts = [*_task(result.task), LabelText(title="Script", steps=_steps(found.script))]
        return LabelItem(
            item=_item_id(result.task, drawn.candidate_id),
            criterion=drawn.criterion,
            question=self._questions.get(drawn.criterion, drawn.criterion.replace("_", " ")),
            texts=texts,
            choices=VERDICTS,
        )

    def _text(self, drawn: Drawn, result: TextsResult, _: bytes) -> LabelItem | None:
        rule = next((one for one in result.criteria if sanitize(one.id) == drawn.criterion), None)
        found = next((one for one in result.texts if sanitize(one.text_id) == drawn.candidate_id), None)
        if rule is None or found is None or rule.HasField("scale") == (self._task == LABEL_TASK_VERDICT):
            return None
        scale = range(rule.scale.lowest, rule.scale.highest + 1)
        return LabelItem(
            item=_item_id(result.task, drawn.candidate_id),
            criterion=drawn.criterion,
            question=_rule(rule),
            texts=[*_task(result.task), LabelText(title="Text", text=found.text)],
            choices=[str(score) for score in scale] if rule.HasField("scale") else VERDICTS,
        )

    def _pair(self, drawn: Drawn, _: object, request: bytes) -> LabelItem | None:
        pair = EvaluatePairsRequest.FromString(request)
        texts = [("Instruction", pair.instruction), ("Source", pair.source)]
        texts += [("First text", pair.first.text), ("Second text", pair.second.text)]
        return LabelItem(
            item=pair.id or f"sample {drawn.sample}",
            question="Which text is better?",
            texts=[LabelText(title=title, text=text) for title, text in texts if text],
            choices=PREFERENCES,
        )

    def _dialogue(self, drawn: Drawn, result: DialogueResult, _: bytes) -> LabelItem | None:
        replies = {sanitize(reply.model): reply.text for reply in result.replies}
        models = [drawn.model, *([drawn.opponent] if drawn.opponent else [])]
        if any(model not in replies for model in models):
            return None
        titles = ("First reply", "Second reply") if drawn.opponent else ("Reply",)
        shown = [
            LabelText(title=title, text=replies[model]) for title, model in zip(titles, models, strict=True)
        ]
        script = result.script
        dialogue = [
            f"{'user' if one.speaker == SPEAKER_USER else 'simulator'}: {one.text}"
            for one in script.utterances
        ]
        question = (
            "Which reply simulates the system better?"
            if drawn.opponent
            else ("How well does the reply simulate the system, from 1 (worst) to 10 (best)?")
        )
        return LabelItem(
            item="/".join([script.id or script.task.name, *models]),
            question=question,
            texts=[
                LabelText(title="Task", text=script.task.description),
                LabelText(title="Dialogue", steps=dialogue),
                *shown,
            ],
            choices=PREFERENCES if drawn.opponent else RATINGS,
        )


def _item_id(task: Task, candidate_id: str) -> str:
    return f"{task.id or task.goal}/{candidate_id}"


def _task(task: Task) -> Iterator[LabelText]:
    yield LabelText(title="Task", text=task.goal)
    if task.constraints:
        yield LabelText(title="Constraints", steps=task.constraints)


def _steps(script: Script) -> Sequence[str]:
    return [step.text for step in script.steps]


def _rule(rule: RubricCriterion) -> str:
    parts = [rule.description]
    parts += [f"{word}: {text}" for word, text in (("Pass", rule.passes), ("Fail", rule.fails)) if text]
    parts += [f"{anchor.value}: {anchor.meaning}" for anchor in rule.scale.anchors]
    return "\n".join(part for part in parts if part)
