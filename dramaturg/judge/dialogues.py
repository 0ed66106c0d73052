"""Dialogues between a user and a simulator: validation and prompt excerpts.

A turn is a user's utterance and the simulator's answer to it. Turns count from 1 (SimulBench, section 2.4).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, Field

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Speaker, Utterance
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.fence import fence
from dramaturg.service.errors import Violation, invalid_fields

_SPEAKERS = {dialogue_pb2.SPEAKER_USER: "user", dialogue_pb2.SPEAKER_SIMULATOR: "simulator"}
_ALTERNATION = tuple(_SPEAKERS)


class DialogueLimits(BaseModel):
    """The maximum length of each part of a request in a prompt, in characters. Longer parts are cut."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: int = Field(default=20_000, ge=1000)
    """The description of the simulation."""
    dialogue: int = Field(default=200_000, ge=1000)
    """All utterances together. The longest are truncated to a common length."""
    response: int = Field(default=100_000, ge=1000)
    """The judged response."""


def require_turns(
    utterances: Sequence[Utterance], *, last: Speaker.ValueType, path: str = "utterances"
) -> None:
    """Validates that utterances alternate, begin with the user and end with ``last``.

    Raises:
        ServiceError: INVALID_ARGUMENT, with every utterance that is out of turn.
    """
    violations = list(_violations(utterances, last, path))
    if violations:
        raise invalid_fields(violations)


def _violations(utterances: Sequence[Utterance], last: Speaker.ValueType, path: str) -> Iterator[Violation]:
    for index, utterance in enumerate(utterances):
        expected = _ALTERNATION[index % 2]
        if utterance.speaker != expected:
            yield Violation(
                f"{path}[{index}].speaker",
                f"must be {Speaker.Name(expected)}: utterances alternate and begin with the user's",
            )
    if not utterances or _ALTERNATION[(len(utterances) - 1) % 2] != last:
        yield Violation(path, f"must end with the {_SPEAKERS[last]}'s utterance")


def task_excerpt(task: SimulationTask, utterances: Sequence[Utterance], limits: DialogueLimits) -> Excerpt:
    """The name of the simulation, and its description unless the dialogue opens with it."""
    name = fence("task", task.name, limit=limits.task)
    if utterances and utterances[0].text.strip() == task.description.strip():
        return Excerpt((name,))
    return Excerpt((name, fence("task description", task.description, limit=limits.task)))


def dialogue_excerpt(utterances: Sequence[Utterance], limits: DialogueLimits) -> Excerpt:
    """The dialogue. Each utterance has its own fence, labelled with turn and speaker."""
    share = _largest_share([len(utterance.text) for utterance in utterances], limits.dialogue)
    return Excerpt(
        tuple(
            fence(f"turn {index // 2 + 1} {_SPEAKERS[utterance.speaker]}", utterance.text, limit=share)
            for index, utterance in enumerate(utterances)
        )
    )


def _largest_share(lengths: Sequence[int], limit: int) -> int:
    """Returns the largest common length of truncated texts for a total of at most ``limit``."""
    shares = range(1, limit + 1)
    return bisect_right(shares, limit, key=lambda share: sum(min(length, share) for length in lengths))
