"""What every kind of edge model offers to those that serve, evaluate and train it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from services.edges.order import Edge

BATCH_SIZE = 64
"""The pairs of a batch where nobody waits for its end."""


class WindowError(ValueError):
    """The events of a script are too long to be read together.

    Attributes:
        description: What is wrong with the events.
    """

    def __init__(self, length: int, window: int, scenario: str = "") -> None:
        self.length, self.window = length, window
        self.description = (
            f"make {length} tokens with the scenario; the model reads at most {window} together"
        )
        super().__init__(
            f"{scenario}: events {self.description}" if scenario else f"events {self.description}"
        )


class Part(NamedTuple):
    """Parameters that learn at a rate of their own."""

    module: Any
    """A ``torch.nn.Module``."""
    rate: float
    """Its learning rate in terms of the plan's."""


class Inference(Protocol):
    """One script that a model answers for, a batch at a time. Its methods block."""

    @property
    def batches(self) -> int:
        """How many batches it takes."""

    @property
    def truncated(self) -> int:
        """How many of the readings were cut to fit."""

    def work(self, batch: int) -> None:
        """Computes one batch, from 0; each once."""

    def probabilities(self) -> Mapping[Edge, float]:
        """For every ordered pair of places a probability. All batches are done before."""


class EdgeReader(Protocol):
    """A model that tells how events are ordered."""

    def inference(self, scenario: str, events: Sequence[str], batch_size: int) -> Inference:
        """Reads a script, to answer for every pair of its events.

        Args:
            scenario: What the script is for.
            events: The events' texts; at least two, none empty.
            batch_size: The most pairs of a batch; a model that reads events together takes at least one
                script at a time.

        Raises:
            WindowError: The model reads all events together, and they are too long.
        """


class EdgeEncoder(EdgeReader, Protocol):
    """A model that can also learn."""

    @property
    def model(self) -> Any:
        """The ``torch.nn.Module`` that holds all weights."""

    @property
    def parts(self) -> Sequence[Part]:
        """What of the model learns, and how fast."""

    def save(self, folder: Path) -> None:
        """Writes weights, configuration and tokenizer."""


def infer(encoder: EdgeReader, scenario: str, events: Sequence[str]) -> Mapping[Edge, float]:
    """How likely each event of a script comes before each other. Blocks.

    Raises:
        WindowError: As ``EdgeReader.inference`` does.
    """
    inference = encoder.inference(scenario, events, BATCH_SIZE)
    for batch in range(inference.batches):
        inference.work(batch)
    return inference.probabilities()


class Ensemble:
    """Asks every member.

    Models that were trained from other random numbers are wrong about other pairs, so their mean is right
    more often than each (Dietterich, 2000). It costs as many times the work.

    Args:
        members: At least one.
    """

    def __init__(self, members: Sequence[EdgeReader]) -> None:
        self._members = members

    def inference(self, scenario: str, events: Sequence[str], batch_size: int) -> EnsembleInference:
        """Reads a script with every member.

        Raises:
            WindowError: As a member's.
        """
        return EnsembleInference([member.inference(scenario, events, batch_size) for member in self._members])


class EnsembleInference:
    """One script, answered for by one member after the other."""

    def __init__(self, members: Sequence[Inference]) -> None:
        self._members = members
        self._batches = [(member, batch) for member in members for batch in range(member.batches)]

    @property
    def batches(self) -> int:
        """How many batches all members take."""
        return len(self._batches)

    @property
    def truncated(self) -> int:
        """How many of all readings were cut to fit."""
        return sum(member.truncated for member in self._members)

    def work(self, batch: int) -> None:
        """Computes one batch of one member."""
        member, its_batch = self._batches[batch]
        member.work(its_batch)

    def probabilities(self) -> Mapping[Edge, float]:
        """The means over all members."""
        answers = [member.probabilities() for member in self._members]
        return {edge: sum(answer[edge] for answer in answers) / len(answers) for edge in answers[0]}
