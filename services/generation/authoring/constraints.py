"""Adds constraints to an abstract goal (ABSEval, section 2, Tables 1, 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.generation.v1 import authoring_datasets_pb2 as pb
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.phrases import names_phrase
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.shapes import ListOf, Record, Text
from services.generation.author import Author, with_defaults
from services.generation.authoring.excerpts import labelled

TEMPERATURE = 0.7
"""The default temperature. At 0 the repeats of a goal would be equal. The paper states none."""
MOST = 3
"""The maximum number of constraints (section 2)."""

_LONGEST = {"constraint": 2000, "goal": 10_000}
"""In characters (``common.v1.Task``)."""
_LONGEST_EXAMPLE = 20_000
_EXAMPLES = (
    pb.ConstraintDemonstration(
        abstract_goal="Pack a suitcase",
        constraints=["for a week in winter", "with hand luggage only", "in half an hour"],
        specific_goal="Pack a suitcase for a week in winter with hand luggage only in half an hour",
    ),
    pb.ConstraintDemonstration(
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

    async def expand(self, request: pb.ExpandConstraintsRequest) -> pb.ExpandConstraintsResponse:
        """Makes a task with one constraint, one with two, and so on.

        Raises:
            ServiceError: The model gives no answer.
        """
        count = request.constraint_count or MOST
        examples = [
            fence(f"example {number}", _told(example), limit=_LONGEST_EXAMPLE).text
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
        response = pb.ExpandConstraintsResponse(provenance=answer.provenance)
        if answer.abstention is not None:
            response.failure = answer.abstention.explanation
        elif answer.value is not None:
            response.tasks.extend(_tasks(request, answer.value))
        return response


def unworded(goal: str, constraints: Sequence[str]) -> Iterator[int]:
    """The indices of the constraints that the wording of a goal lacks."""
    return (index for index, constraint in enumerate(constraints) if not names_phrase(goal, constraint))


def _tasks(request: pb.ExpandConstraintsRequest, found: Sequence[Narrowed]) -> Iterator[pb.ExpandedTask]:
    for number, narrowed in enumerate(found, start=1):
        constraints = [one.constraint for one in found[:number]]
        task = Task(
            goal=narrowed.goal,
            constraints=constraints,
            topic=request.topic,
            abstract_goal=request.abstract_goal,
        )
        yield pb.ExpandedTask(task=task, unworded_constraint_indices=unworded(narrowed.goal, constraints))


def _told(example: pb.ConstraintDemonstration) -> str:
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
