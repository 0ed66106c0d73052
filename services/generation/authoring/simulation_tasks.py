"""Writes new simulation tasks from examples (SimulBench, section 2.2 and appendix B.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask
from dramaturg.api.generation.v1 import authoring_dialogues_pb2 as pb
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.shapes import Record, Text
from dramaturg.service.errors import invalid
from services.generation.author import Author
from services.generation.authoring.excerpts import labelled

_PROMPTS = {
    dialogue_pb2.SIMULATION_KIND_STATELESS: "write_stateless_task",
    dialogue_pb2.SIMULATION_KIND_STATEFUL: "write_stateful_task",
}
_LONGEST_EXAMPLE = 30_000


class SimulationTaskForm:
    """The form of an explanation and a task."""

    name = "simulation_task"
    shape = Record(
        {
            "idea": Text("what is simulated, why it is new, and what knowledge it takes", optional=True),
            "name": Text("a short noun phrase that names the task"),
            "description": Text("one paragraph: the task and its input, its output, the first request"),
            "request_type": Text("the general form of a request, in a few words"),
        }
    )
    _LIMITS: Mapping[str, int] = {"name": 200, "description": 20_000, "request_type": 2000}
    """The maximum lengths in characters (``common.v1.SimulationTask``)."""

    def parse(self, value: Any) -> SimulationTask:
        """Returns the task, without its kind.

        Raises:
            UnclearAnswerError: A part of the task is missing, blank or too long.
        """
        members = value if isinstance(value, Mapping) else {}
        parts: dict[str, str] = {}
        for part, limit in self._LIMITS.items():
            text = members.get(part)
            if not isinstance(text, str) or not text.strip():
                raise UnclearAnswerError(f"the task has no {part}")
            parts[part] = text.strip()
            if len(parts[part]) > limit:
                raise UnclearAnswerError(f"the task's {part} has over {limit} characters")
        return SimulationTask(
            name=parts["name"], description=parts["description"], request_type=parts["request_type"]
        )


class SimulationTaskWriter:
    """Writes tasks with a model.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompts = {
            kind: library.load(name, fixed=(ANSWER_PLACEHOLDER,), content=("examples",))
            for kind, name in _PROMPTS.items()
        }

    async def write(self, request: pb.WriteSimulationTaskRequest) -> pb.WriteSimulationTaskResponse:
        """Writes one task.

        Raises:
            ServiceError: INVALID_ARGUMENT, or the model gives no answer.
        """
        prompt = self._prompts.get(request.kind)
        if prompt is None:
            raise invalid("kind", "must be SIMULATION_KIND_STATELESS or SIMULATION_KIND_STATEFUL")
        examples = [
            fence(f"example {number}", _told(example), limit=_LONGEST_EXAMPLE).text
            for number, example in enumerate(request.examples, start=1)
        ]
        values = {"examples": "\n".join(examples)}
        answer = await self._author.asker.ask(prompt, values, SimulationTaskForm(), request.options)
        response = pb.WriteSimulationTaskResponse(task=answer.value, provenance=answer.provenance)
        if answer.abstention is not None:
            response.failure = answer.abstention.explanation
        else:
            response.task.kind = request.kind
        return response


def _told(task: SimulationTask) -> str:
    return labelled({"name": task.name, "description": task.description, "request_type": task.request_type})
