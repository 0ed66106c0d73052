"""Pairs of events and their classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations

from services.edges.order import Edge

MAX_EVENTS = 40
"""The maximum number of events of a script, as in ``PredictEdgesRequest``."""


class Relation(IntEnum):
    """The classes of a pair."""

    NEITHER = 0
    FORWARD = 1
    """The first event precedes the second."""
    BACKWARD = 2
    """The second event precedes the first."""


@dataclass(frozen=True)
class Pair:
    """Two events of a script and its scenario."""

    scenario: str
    first: str
    second: str

    @property
    def texts(self) -> tuple[str, str]:
        """The two segments of the cross-encoder's input."""
        return f"{self.scenario}: {self.first}", self.second

    def clipped(self, scenario: int, event: int) -> Pair:
        """A copy with texts truncated to the given numbers of code points."""
        return Pair(self.scenario[:scenario], self.first[:event], self.second[:event])

    @property
    def flipped(self) -> Pair:
        """A copy with the events exchanged."""
        return Pair(self.scenario, self.second, self.first)


def pairs_of(scenario: str, events: Sequence[str]) -> list[Pair]:
    """All pairs of events: first (i, j) for i < j, then each of them flipped."""
    forward = [Pair(scenario, first, second) for first, second in combinations(events, 2)]
    return forward + [pair.flipped for pair in forward]


def merge_orders(size: int, answers: Iterable[Sequence[float]]) -> Mapping[Edge, float]:
    """Averages the probabilities of both orders of each pair.

    The model may be inconsistent between orders. The mean does not depend on the order of the events.

    Args:
        size: The number of events.
        answers: The probabilities of the three relations for each of ``pairs_of``, in its order.

    Returns:
        A probability for each ordered pair of indices. The two of one pair add up to at most 1.
    """
    rows = list(answers)
    half = len(rows) // 2
    probabilities: dict[Edge, float] = {}
    for (i, j), shown, flipped in zip(combinations(range(size), 2), rows[:half], rows[half:], strict=True):
        probabilities[i, j] = (shown[Relation.FORWARD] + flipped[Relation.BACKWARD]) / 2
        probabilities[j, i] = (shown[Relation.BACKWARD] + flipped[Relation.FORWARD]) / 2
    return probabilities
