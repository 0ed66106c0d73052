"""Several models that answer as one: the mean of their probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.edges.inference import EdgeReader, Inference
from services.edges.order import Edge


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
