"""Puts one fault into a script (ABSEval, section 4.2, Tables 4 and 10).

The paper's prompts ask for a whole new script, in which a model may make further, unreported changes. Here
the model returns edits, so that every change is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.generation.v1 import authoring_datasets_pb2 as pb
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.excerpts import ExcerptLimits, constraints_excerpt, goal_excerpt
from dramaturg.judge.fence import fence_items
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.shapes import Choice, ListOf, Number, Record, Text
from dramaturg.judge.steps import is_blank
from dramaturg.meta_evaluation.categories import BY_MODEL, CRITERIA, Category
from dramaturg.meta_evaluation.changes import PlacedStep, find_changes, untouched
from dramaturg.service.errors import Violation, invalid_fields
from services.generation.author import Author

_LONGEST = 20_000
"""The maximum length of a step in characters (``common.v1.Step``)."""


class Action(StrEnum):
    """The kinds of edits of a script."""

    REMOVE = "remove"
    REPLACE = "replace"
    INSERT = "insert"
    MOVE = "move"

    @property
    def explanation(self) -> str:
        """The description of the action for a prompt."""
        return _EXPLANATIONS[self]


_EXPLANATIONS: Mapping[Action, str] = {
    Action.REMOVE: "takes the step out.",
    Action.REPLACE: "lets the step say the text instead.",
    Action.INSERT: "puts a new step with the text after the step named; 0 puts it before the first one.",
    Action.MOVE: "takes the step to after the step that place_after names; 0 puts it before the first one.",
}


class Edit(NamedTuple):
    action: Action
    step: int
    """The number of the step, from 1. For an insertion: the number of the preceding step, or 0."""
    place_after: int
    """For a move: the number of the step after which the moved one is placed; 0: before the first."""
    text: str
    """The text of a new or replaced step."""


class Edited(NamedTuple):
    """The result of edits."""

    steps: Sequence[PlacedStep]
    """The steps of the edited script."""
    idea: str
    """The intention of the edits, in the model's words."""


class EditsForm:
    """The form of an intention and edits.

    Args:
        original: The script.
        actions: The permitted actions.
    """

    name = "edits"

    def __init__(self, original: Sequence[str], actions: Sequence[Action]) -> None:
        self._original = original
        self._actions = actions
        self.shape = Record(
            {
                "idea": Text("what is changed, and why the script then has the fault", optional=True),
                "edits": ListOf(
                    Record(
                        {
                            "action": Choice(tuple(actions)),
                            "step": Number("the step's number"),
                            "place_after": Number("of a move: after which step; else 0"),
                            "text": Text("of a new or replaced step: what it says; else empty"),
                        }
                    )
                ),
            }
        )

    def parse(self, value: Any) -> Edited:
        """Reads edits and applies them.

        Raises:
            UnclearAnswerError: There are no edits, one cannot be applied, or the result is unchanged or
                empty.
        """
        members = value if isinstance(value, Mapping) else {}
        listed, idea = members.get("edits"), members.get("idea")
        if not isinstance(listed, list) or not listed:
            raise UnclearAnswerError("the answer names no edits")
        steps = self._carry_out([self._read(entry) for entry in listed])
        if not steps:
            raise UnclearAnswerError("the edits leave no step")
        if [step.text for step in steps] == list(self._original):
            raise UnclearAnswerError("the edits change nothing")
        return Edited(steps, " ".join(idea.split()) if isinstance(idea, str) else "")

    def _read(self, entry: Any) -> Edit:
        members = entry if isinstance(entry, Mapping) else {}
        action = next((one for one in self._actions if one == members.get("action")), None)
        if action is None:
            raise UnclearAnswerError(f"{members.get('action')!r} is none of {', '.join(self._actions)}")
        step = self._number(members.get("step"), least=0 if action == Action.INSERT else 1)
        place = self._number(members.get("place_after"), least=0) if action == Action.MOVE else 0
        text = members.get("text")
        written = " ".join(text.split()) if isinstance(text, str) else ""
        if action in (Action.INSERT, Action.REPLACE) and not 0 < len(written) <= _LONGEST:
            raise UnclearAnswerError(f"the text of a step is blank or has over {_LONGEST} characters")
        return Edit(action, step, place, written)

    def _number(self, value: Any, *, least: int) -> int:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or not least <= value <= len(self._original):
            raise UnclearAnswerError(f"there is no step {value!r}")
        return int(value)

    def _carry_out(self, edits: Sequence[Edit]) -> list[PlacedStep]:
        """Returns the steps after all edits. Step numbers are those of the original script."""
        steps: list[PlacedStep | None] = list(untouched(self._original))
        after: dict[int, list[PlacedStep]] = {number: [] for number in range(len(steps) + 1)}
        edited: set[int] = set()
        for edit in edits:
            if edit.action == Action.INSERT:
                after[edit.step].append(PlacedStep(edit.text))
                continue
            step = steps[edit.step - 1]
            if edit.step in edited or step is None:
                raise UnclearAnswerError(f"step {edit.step} is edited twice")
            edited.add(edit.step)
            if edit.action == Action.REPLACE:
                steps[edit.step - 1] = step._replace(text=edit.text)
                continue
            steps[edit.step - 1] = None
            if edit.action == Action.MOVE:
                after[edit.place_after].append(step._replace(moved=True))
        placed = list(after[0])
        for number, step in enumerate(steps, start=1):
            placed += [step] if step is not None else []
            placed += after[number]
        return placed


_ANY = tuple(Action)
_ACTIONS: Mapping[Category, Sequence[Action]] = MappingProxyType(
    {
        Category.MISSING_STEPS: (Action.REMOVE,),
        Category.REDUNDANT_STEPS: (Action.INSERT,),
        Category.DUPLICATE_STEPS: (Action.INSERT,),
        Category.BROKEN_CONSTRAINT: _ANY,
        Category.GOAL_NOT_REACHED: _ANY,
        Category.WRONG_ORDER: (Action.MOVE,),
    }
)
_CATEGORIES = {category.number: category for category in Category}
_LIMITS = ExcerptLimits()


class ScriptPerturber:
    """Puts faults into scripts with a model.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load(
            "perturb_script",
            fixed=(ANSWER_PLACEHOLDER,),
            content=("goal", "constraints", "script", "fault", "actions"),
            parts=tuple(CRITERIA.values()),
        )

    async def perturb(self, request: pb.PerturbScriptRequest) -> pb.PerturbScriptResponse:
        """Puts one fault into a script.

        Raises:
            ServiceError: INVALID_ARGUMENT, or the model gives no answer.
        """
        violations = list(_violations(request))
        if violations:
            raise invalid_fields(violations)
        category = _CATEGORIES[request.category]
        steps = [step.text for step in request.script.steps]
        actions = _ACTIONS[category]
        values = {
            "goal": goal_excerpt(request.task, _LIMITS).text,
            "constraints": constraints_excerpt(request.task, _LIMITS).text,
            "script": fence_items("script", "Step", steps, limit=_LIMITS.candidate).text,
            "fault": self._prompt.parts[category.criterion],
            "actions": "\n".join(f"- {action}: {action.explanation}" for action in actions),
        }
        answer = await self._author.asker.ask(
            self._prompt, values, EditsForm(steps, actions), request.options
        )
        response = pb.PerturbScriptResponse(provenance=answer.provenance)
        if answer.abstention is not None:
            response.failure = answer.abstention.explanation
        elif answer.value is not None:
            placed, idea = answer.value
            response.script.CopyFrom(Script(steps=[Step(text=step.text) for step in placed]))
            response.perturbation.CopyFrom(
                pb.Perturbation(
                    category=request.category,
                    operation=BY_MODEL,
                    changes=[change.message() for change in find_changes(steps, placed)],
                    intent=idea,
                )
            )
        return response


def _violations(request: pb.PerturbScriptRequest) -> Iterator[Violation]:
    category = _CATEGORIES.get(request.category)
    steps = request.script.steps
    if category is None:
        yield Violation("category", "must be one of PerturbationCategory, and not unspecified")
    if request.script.edges:
        yield Violation("script.edges", "must be empty: only the listed order is changed")
    for index, step in enumerate(steps):
        if is_blank(step.text):
            yield Violation(f"script.steps[{index}].text", "must not be blank")
    least = 2 if category in (Category.MISSING_STEPS, Category.WRONG_ORDER) else 1
    if len(steps) < least:
        yield Violation("script.steps", f"must be {least} or more for this category, not {len(steps)}")
    if category == Category.BROKEN_CONSTRAINT and not request.task.constraints:
        yield Violation("task.constraints", "must not be empty for PERTURBATION_CATEGORY_BROKEN_CONSTRAINT")
