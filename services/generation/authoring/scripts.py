"""Writes scripts, adds constraints to their goals, and puts one fault into a script (ABSEval).

For faults (section 4.2, Tables 4 and 10) the paper's prompts ask for a whole new script, in which a model may
make further, unreported changes. Here the model returns edits, so that every change is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from dramaturg.api.common.v1.script_pb2 import Script, Step, Task
from dramaturg.api.generation.v1 import authoring_datasets_pb2, authoring_service_pb2, generation_service_pb2
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.excerpts import ExcerptLimits, constraints_excerpt, goal_excerpt
from dramaturg.judge.fence import fence, fence_items
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.quotes import names_phrase
from dramaturg.judge.refusals import is_refusal
from dramaturg.judge.shapes import Choice, ListOf, Number, Record, Text
from dramaturg.judge.steps import is_blank, split_steps
from dramaturg.meta_evaluation.rules import BY_MODEL, CRITERIA, Category, PlacedStep, find_changes, untouched
from dramaturg.service import threads
from dramaturg.service.errors import Violation, invalid_fields
from services.generation.author import Author, labelled, with_defaults

_FAILURES = {
    generation_service_pb2.COMPLETION_STATUS_REFUSED: "refused",
    generation_service_pb2.COMPLETION_STATUS_TRUNCATED: "truncated",
    generation_service_pb2.COMPLETION_STATUS_EMPTY: "empty",
}


class ScriptWriter:
    """Writes scripts with a model, step by step.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load("write_script", content=("task",))

    async def write(
        self, request: authoring_service_pb2.WriteScriptRequest
    ) -> authoring_service_pb2.WriteScriptResponse:
        """Writes one script. It has no steps if the text has none.

        Raises:
            ServiceError: The model gives no answer.
        """
        written = await self._author.write(
            self._prompt.render({"task": _told(request.task)}),
            request.options,
            prompts=[self._prompt.reference],
        )
        failure = _FAILURES.get(written.completion.status, "")
        if not failure and is_refusal(written.text):
            failure = _FAILURES[generation_service_pb2.COMPLETION_STATUS_REFUSED]
        steps = () if failure else await threads.parse(len(written.text), split_steps, written.text)
        return authoring_service_pb2.WriteScriptResponse(
            text=written.text,
            script=None if failure else Script(steps=[Step(text=step) for step in steps]),
            provenance=written.provenance,
            failure=failure,
        )


def _told(task: Task) -> str:
    lines = [task.goal]
    if task.constraints:
        lines += ["", "Keep to these constraints:", *(f"- {constraint}" for constraint in task.constraints)]
    return "\n".join(lines)


TEMPERATURE = 0.7
"""The default temperature. At 0 the repeats of a goal would be equal. The paper states none."""
MOST = 3
"""The maximum number of constraints (section 2)."""

_LONGEST = {"constraint": 2000, "goal": 10_000}
"""In characters (``common.v1.Task``)."""
_LONGEST_EXAMPLE = 20_000
_EXAMPLES = (
    authoring_datasets_pb2.ConstraintDemonstration(
        abstract_goal="Pack a suitcase",
        constraints=["for a week in winter", "with hand luggage only", "in half an hour"],
        specific_goal="Pack a suitcase for a week in winter with hand luggage only in half an hour",
    ),
    authoring_datasets_pb2.ConstraintDemonstration(
        abstract_goal="How to Learn a Song",
        constraints=["on the guitar", "without reading music"],
        specific_goal="Learn a song on the guitar without reading music",
    ),
)
"""The examples of requests without examples."""


class Narrowed(NamedTuple):
    """A constraint, and the goal with this and all preceding constraints."""

    constraint: str
    goal: str


class ConstraintsForm:
    """Constraints, each with the resulting goal.

    Args:
        count: The number of constraints.
    """

    name = "constraints"
    shape = Record(
        {
            "idea": Text(
                "in which situations somebody would want this, and what differs between them", optional=True
            ),
            "constraints": ListOf(
                Record(
                    {
                        "constraint": Text("the constraint, in a few words"),
                        "goal": Text("the goal with this constraint and all before it, in one sentence"),
                    }
                )
            ),
        }
    )

    def __init__(self, count: int) -> None:
        self._count = count

    def parse(self, value: Any) -> Sequence[Narrowed]:
        """Reads the constraints.

        Raises:
            UnclearAnswerError: The number differs from the requested one, or a constraint is blank, too long
                or repeated.
        """
        listed = value.get("constraints") if isinstance(value, Mapping) else None
        if not isinstance(listed, list) or len(listed) != self._count:
            raise UnclearAnswerError(f"the answer has not {self._count} constraints")
        found = [Narrowed(_line(entry, "constraint"), _line(entry, "goal")) for entry in listed]
        for texts in zip(*found, strict=True):
            if len({text.casefold() for text in texts}) < len(texts):
                raise UnclearAnswerError("the answer says the same twice")
        return found


class ConstraintExpander:
    """Adds constraints to goals with a model.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load(
            "expand_constraints", fixed=(ANSWER_PLACEHOLDER,), content=("examples", "goal", "count")
        )

    async def expand(
        self, request: authoring_datasets_pb2.ExpandConstraintsRequest
    ) -> authoring_datasets_pb2.ExpandConstraintsResponse:
        """Makes a task with one constraint, one with two, and so on.

        Raises:
            ServiceError: The model gives no answer.
        """
        count = request.constraint_count or MOST
        examples = [
            fence(f"example {number}", _shown_example(example), limit=_LONGEST_EXAMPLE).text
            for number, example in enumerate(request.demonstrations or _EXAMPLES, start=1)
        ]
        values = {
            "examples": "\n".join(examples),
            "goal": fence("goal", request.abstract_goal, limit=_LONGEST_EXAMPLE).text,
            "count": str(count),
        }
        answer = await self._author.asker.ask(
            self._prompt,
            values,
            ConstraintsForm(count),
            with_defaults(request.options, temperature=TEMPERATURE),
        )
        response = authoring_datasets_pb2.ExpandConstraintsResponse(provenance=answer.provenance)
        if answer.abstention is not None:
            response.failure = answer.abstention.explanation
        elif answer.value is not None:
            response.tasks.extend(_tasks(request, answer.value))
        return response


def unworded(goal: str, constraints: Sequence[str]) -> Iterator[int]:
    """The indices of the constraints that the wording of a goal lacks."""
    return (index for index, constraint in enumerate(constraints) if not names_phrase(goal, constraint))


def _tasks(
    request: authoring_datasets_pb2.ExpandConstraintsRequest, found: Sequence[Narrowed]
) -> Iterator[authoring_datasets_pb2.ExpandedTask]:
    for number, narrowed in enumerate(found, start=1):
        constraints = [one.constraint for one in found[:number]]
        task = Task(
            goal=narrowed.goal,
            constraints=constraints,
            topic=request.topic,
            abstract_goal=request.abstract_goal,
        )
        yield authoring_datasets_pb2.ExpandedTask(
            task=task, unworded_constraint_indices=unworded(narrowed.goal, constraints)
        )


def _shown_example(example: authoring_datasets_pb2.ConstraintDemonstration) -> str:
    return labelled(
        {
            "Goal": example.abstract_goal,
            **{f"Constraint {number}": text for number, text in enumerate(example.constraints, start=1)},
            "Goal with all of them": example.specific_goal,
        }
    )


def _line(entry: Any, member: str) -> str:
    """Returns a member on one line, without a full stop."""
    text = entry.get(member) if isinstance(entry, Mapping) else None
    line = " ".join(text.split()).removesuffix(".").rstrip() if isinstance(text, str) else ""
    if not line:
        raise UnclearAnswerError(f"a {member} is blank")
    if len(line) > _LONGEST[member]:
        raise UnclearAnswerError(f"a {member} has over {_LONGEST[member]} characters")
    return line


_LONGEST_STEP = 20_000
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
        if action in (Action.INSERT, Action.REPLACE) and not 0 < len(written) <= _LONGEST_STEP:
            raise UnclearAnswerError(f"the text of a step is blank or has over {_LONGEST_STEP} characters")
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

    async def perturb(
        self, request: authoring_datasets_pb2.PerturbScriptRequest
    ) -> authoring_datasets_pb2.PerturbScriptResponse:
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
        response = authoring_datasets_pb2.PerturbScriptResponse(provenance=answer.provenance)
        if answer.abstention is not None:
            response.failure = answer.abstention.explanation
        elif answer.value is not None:
            placed, idea = answer.value
            response.script.CopyFrom(Script(steps=[Step(text=step.text) for step in placed]))
            response.perturbation.CopyFrom(
                authoring_datasets_pb2.Perturbation(
                    category=request.category,
                    operation=BY_MODEL,
                    changes=[change.message() for change in find_changes(steps, placed)],
                    intent=idea,
                )
            )
        return response


def _violations(request: authoring_datasets_pb2.PerturbScriptRequest) -> Iterator[Violation]:
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
