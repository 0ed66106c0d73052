"""Continues dialogues as the user and as the model under test, and writes simulation tasks (SimulBench)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.generation.v1 import authoring_dialogues_pb2 as pb
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Message
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.excerpts import DialogueLimits, Excerpt, dialogue_excerpt, require_turns, task_excerpt
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.judge.shapes import MOST_CHARACTERS, Choice, Record, Shape, Text
from dramaturg.service.errors import invalid
from services.generation.author import Author, labelled, with_defaults

STRATEGIES = ("improvement", "next-step", "new-request", "other")
"""The user agent's strategies, in the order of section 2.3."""
USER_TEMPERATURE, USER_MAX_OUTPUT_TOKENS = 1.2, 300
"""The default temperature (section 3.2)."""

_MAX_LENGTH = 200_000
"""The maximum length of an utterance in characters (``common.v1.Utterance``)."""
_STRATEGY = Choice(STRATEGIES)


class UserTurn(NamedTuple):
    """The next utterance of the user."""

    strategy: str
    text: str


@dataclass(frozen=True)
class UserTurnForm:
    """The form of a strategy and an utterance."""

    own_strategy: str
    """The task's own strategy. Blank: the model chooses a general one."""

    @property
    def name(self) -> str:
        return "user_turn"

    @property
    def shape(self) -> Record:
        """The strategy where there is a choice, then the utterance."""
        said = Text("what you say next to the simulator, word for word", most=MOST_CHARACTERS)
        members: dict[str, Shape] = {} if self.own_strategy else {"strategy": _STRATEGY}
        return Record(members | {"utterance": said})

    def parse(self, value: Any) -> UserTurn:
        """Reads the utterance.

        Raises:
            UnclearAnswerError: The strategy is missing, or the utterance is blank or too long.
        """
        members = value if isinstance(value, Mapping) else {}
        strategy, text = self.own_strategy or members.get("strategy"), members.get("utterance")
        if not self.own_strategy and strategy not in STRATEGIES:
            raise UnclearAnswerError("the answer has no strategy")
        if not isinstance(text, str) or not text.strip():
            raise UnclearAnswerError("the user says nothing")
        if len(text) > _MAX_LENGTH:
            raise UnclearAnswerError(f"the utterance has over {_MAX_LENGTH} characters")
        return UserTurn(str(strategy), text.strip())


class UserAgent:
    """Plays the user with a model.

    Args:
        author: Asks the model.
        library: The prompts.
        limits: The maximum lengths of the parts of a dialogue in the prompt.
    """

    def __init__(self, author: Author, library: PromptLibrary, limits: DialogueLimits) -> None:
        self._author = author
        self._limits = limits
        self._prompt: Prompt = library.load(
            "next_user_turn",
            fixed=(ANSWER_PLACEHOLDER,),
            content=("task", "dialogue", "strategies"),
            parts=[*(_part(strategy) for strategy in STRATEGIES), "persona", "request", "redirection"],
        )

    async def next_turn(self, request: pb.NextUserTurnRequest) -> pb.NextUserTurnResponse:
        """Writes the next utterance of the user.

        Raises:
            ServiceError: INVALID_ARGUMENT, or the model gives no answer.
        """
        require_turns(request.utterances, last=dialogue_pb2.SPEAKER_SIMULATOR)
        task = request.task
        shown = {
            "task": task_excerpt(task, request.utterances, self._limits),
            "dialogue": dialogue_excerpt(request.utterances, self._limits),
        }
        values = {name: excerpt.text for name, excerpt in shown.items()}
        further = {
            "persona": _optional("persona", request.persona),
            "request": _optional("form of a request", task.request_type),
            "redirection": Excerpt(
                tuple(fence("rejected request", one, limit=2000) for one in request.rejected)
            ),
        }
        values["strategies"] = "\n\n".join(
            [
                self._strategies(task),
                *(f"{self._prompt.parts[part]}\n{one.text}" for part, one in further.items() if one.fences),
            ]
        )
        answer = await self._author.asker.ask(
            self._prompt,
            values,
            UserTurnForm(task.strategy_type.strip()),
            with_defaults(
                request.options, temperature=USER_TEMPERATURE, max_output_tokens=USER_MAX_OUTPUT_TOKENS
            ),
        )
        for excerpt in (*shown.values(), *further.values()):
            answer.provenance.parameters.update(excerpt.parameters)
        response = pb.NextUserTurnResponse(provenance=answer.provenance)
        if answer.abstention is not None:
            response.abstain_reason = answer.abstention.reason
        elif answer.value is not None:
            strategy, text = answer.value
            said = Utterance(speaker=dialogue_pb2.SPEAKER_USER, text=text, strategy=strategy)
            response.utterance.CopyFrom(said)
        return response

    def _strategies(self, task: SimulationTask) -> str:
        own = _optional("strategy", task.strategy_type)
        if own.fences:
            return own.text
        return "\n".join(f"{name}: {self._prompt.parts[_part(name)]}" for name in STRATEGIES)


def _optional(label: str, text: str) -> Excerpt:
    return Excerpt((fence(label, text, limit=2000),) if text.strip() else ())


def _part(strategy: str) -> str:
    """The name of the part of the prompt file that describes a strategy."""
    return strategy.replace("-", "_")


REPLY_TEMPERATURE, REPLY_MAX_OUTPUT_TOKENS = 0.0, 1024
"""The default temperature (section 3.2)."""

_ROLES = {
    dialogue_pb2.SPEAKER_USER: generation_service_pb2.MESSAGE_ROLE_USER,
    dialogue_pb2.SPEAKER_SIMULATOR: generation_service_pb2.MESSAGE_ROLE_ASSISTANT,
}


class Continuer:
    """Continues a dialogue with a model under test, which receives only the utterances.

    Args:
        author: Asks the model.
    """

    def __init__(self, author: Author) -> None:
        self._author = author

    async def reply(self, request: pb.ReplyRequest) -> pb.ReplyResponse:
        """Continues the dialogue. An empty answer is an empty reply.

        Raises:
            ServiceError: INVALID_ARGUMENT, or the model gives no answer.
        """
        require_turns(request.utterances, last=dialogue_pb2.SPEAKER_USER)
        messages = [Message(role=_ROLES[said.speaker], text=said.text) for said in request.utterances]
        options = with_defaults(
            request.options, temperature=REPLY_TEMPERATURE, max_output_tokens=REPLY_MAX_OUTPUT_TOKENS
        )
        written = await self._author.write(messages, options)
        response = pb.ReplyResponse(text=written.text, provenance=written.provenance)
        empty = written.completion.status == generation_service_pb2.COMPLETION_STATUS_EMPTY
        if written.abstention is not None and not empty:
            response.abstain_reason = written.abstention.reason
        return response


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
            "description": Text(
                "one paragraph: the task and its input, its output, the first request", most=MOST_CHARACTERS
            ),
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
