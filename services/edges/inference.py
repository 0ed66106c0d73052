"""What every kind of edge model offers to those that serve, evaluate and train it, and its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from services.edges.order import Edge


def inference_batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Batches of at most ``size`` indices into ``lengths``, each index once, longest first."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    return cut(order, size)


def cut(order: Sequence[int], size: int) -> list[list[int]]:
    """Batches of ``size`` indices in order; the last may have fewer."""
    return [list(order[start : start + size]) for start in range(0, len(order), size)]


BATCH_SIZE = 64
"""The batch size of offline inference."""


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


class ParameterGroup(NamedTuple):
    """Parameters with a learning rate factor."""

    module: Any
    """A ``torch.nn.Module``."""
    rate: float
    """Its learning rate in terms of the plan's."""


class Inference(Protocol):
    """One script that a model answers for, a batch at a time. Its methods block."""

    @property
    def batch_count(self) -> int: ...

    @property
    def truncated(self) -> int:
        """The number of truncated inputs."""

    def run_batch(self, batch: int) -> None:
        """Runs one batch, by index; each exactly once."""

    def probabilities(self) -> Mapping[Edge, float]:
        """For every ordered pair of places a probability. All batches are done before."""


class EdgeModel(Protocol):
    """A model that predicts the order of events."""

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


class EdgeEncoder(EdgeModel, Protocol):
    """A model that can be trained."""

    @property
    def model(self) -> Any:
        """The ``torch.nn.Module`` that holds all weights."""

    @property
    def parameter_groups(self) -> Sequence[ParameterGroup]:
        """The trainable parameters with their learning rate factors."""

    def save(self, folder: Path) -> None:
        """Writes weights, configuration and tokenizer."""


def infer(encoder: EdgeModel, scenario: str, events: Sequence[str]) -> Mapping[Edge, float]:
    """How likely each event of a script comes before each other. Blocks.

    Raises:
        WindowError: As ``EdgeModel.inference`` does.
    """
    inference = encoder.inference(scenario, events, BATCH_SIZE)
    for batch in range(inference.batch_count):
        inference.run_batch(batch)
    return inference.probabilities()


class Ensemble:
    """Averages the probabilities of several models.

    Models trained with different seeds make different errors, so their mean is more accurate than each
    (Dietterich, 2000). The cost is proportional to the number of members.

    Args:
        members: The models, at least one.
    """

    def __init__(self, members: Sequence[EdgeModel]) -> None:
        self._members = members

    def inference(self, scenario: str, events: Sequence[str], batch_size: int) -> EnsembleInference:
        """Starts an inference by every member.

        Raises:
            WindowError: The script exceeds a member's window.
        """
        return EnsembleInference([member.inference(scenario, events, batch_size) for member in self._members])


class EnsembleInference:
    """An inference over one script by all members."""

    def __init__(self, members: Sequence[Inference]) -> None:
        self._members = members
        self._batches = [(member, batch) for member in members for batch in range(member.batch_count)]

    @property
    def batch_count(self) -> int:
        """The number of batches of all members."""
        return len(self._batches)

    @property
    def truncated(self) -> int:
        """The number of truncated inputs of all members."""
        return sum(member.truncated for member in self._members)

    def run_batch(self, batch: int) -> None:
        """Runs one batch of one member."""
        member, its_batch = self._batches[batch]
        member.run_batch(its_batch)

    def probabilities(self) -> Mapping[Edge, float]:
        """The means over all members."""
        answers = [member.probabilities() for member in self._members]
        return {edge: sum(answer[edge] for answer in answers) / len(answers) for edge in answers[0]}
