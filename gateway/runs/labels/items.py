"""Items as annotators see them: a question, the judged texts with their context, and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_USER
from dramaturg.api.common.v1.script_pb2 import Script, Task
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult
from dramaturg.api.evaluation.v1.graphs_pb2 import GraphsResult
from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_TASK_CHOICE,
    LABEL_TASK_VERDICT,
    LabelItem,
    LabelTask,
    LabelText,
)
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion, TextsResult
from dramaturg.judge import criteria
from dramaturg.judge.roles import JudgeRole
from dramaturg.results.ratings import HIGHEST, LOWEST
from dramaturg.results.scenarios import TARGETS
from gateway.runs.labels.population import Drawn, edge_id
from gateway.runs.store.tables import sanitize

VERDICTS = ("PASS", "FAIL")
EITHER = "either"
CHOICES = ("option 1", "option 2", EITHER)
LEVELS = ("easy", "medium", "hard")
REJECT = "reject"
REVIEWS = (*LEVELS, EITHER, REJECT)
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
            "graphs": self._edge,
            "decision": self._decision,
            "scenarios": self._scenario,
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
        if item is None or not 1 < len(item.choices) <= MAX_CHOICES:
            return None
        item.sample_index, item.candidate_id = drawn.sample, drawn.candidate_id
        return item

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

    def _edge(self, drawn: Drawn, result: GraphsResult, _: bytes) -> LabelItem | None:
        reference = result.reference
        graph = next((one.graph for one in result.graphs if sanitize(one.model) == drawn.model), None)
        if graph is None:
            return None
        texts = {event.id: event.text for event in reference.events}
        texts |= {event.id: event.text for event in graph.events if event.text}
        ends = next(
            (
                (edge.source_id, edge.target_id)
                for edge in graph.edges
                if edge_id(edge.source_id, edge.target_id) == drawn.candidate_id
            ),
            None,
        )
        if ends is None:
            return None
        first, second = (texts.get(end, end) for end in ends)
        return LabelItem(
            item="/".join(
                part for part in (reference.id or reference.scenario, drawn.model, "->".join(ends)) if part
            ),
            question="Does the first event have to come before the second?",
            texts=[
                LabelText(title="First event", text=first),
                LabelText(title="Second event", text=second),
                LabelText(title="Scenario", text=reference.scenario or reference.id),
                LabelText(title="All events", steps=[texts[event.id] for event in graph.events]),
            ],
            choices=VERDICTS,
        )

    def _decision(self, _: Drawn, result: DecisionResult, __: bytes) -> LabelItem:
        decision = result.decision
        return LabelItem(
            item=decision.id or decision.goal,
            question="Which option does the person choose?",
            texts=_decided(decision.goal, decision.option_1, decision.option_2, decision.scenario),
            choices=CHOICES,
        )

    def _scenario(self, drawn: Drawn, result: ScenariosResult, _: bytes) -> LabelItem | None:
        found = next((one for one in result.scenarios if sanitize(one.id) == drawn.candidate_id), None)
        if found is None or not found.scenario:
            return None
        brief = result.brief
        texts = _decided(brief.goal, brief.option_1, brief.option_2, found.scenario)
        chosen = self._task == LABEL_TASK_CHOICE
        if not chosen:
            texts.append(LabelText(title="Written for", text=TARGETS.get(found.target, "").replace("-", " ")))
        return LabelItem(
            item=f"{result.id}/{found.id}",
            question="Which option does the person choose?"
            if chosen
            else "How hard is the choice of the option that the scenario is written for? "
            "Reject a scenario of no use.",
            texts=texts,
            choices=CHOICES if chosen else REVIEWS,
        )


def _decided(goal: str, first: str, second: str, scenario: str) -> list[LabelText]:
    named = (("Scenario", scenario), ("Goal", goal), ("Option 1", first), ("Option 2", second))
    return [LabelText(title=title, text=text) for title, text in named if text]


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
