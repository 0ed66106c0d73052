"""Partial orders of events as bit sets: closure, reduction, decoding of edge probabilities; pairs of events.

Evaluation decodes thousands of small graphs repeatedly; for a few events this is some fifty times faster than
a graph library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations

Edge = tuple[int, int]
"""The index of an event and of one after it."""


class CycleError(ValueError):
    """The edges have a cycle."""


def closure(edges: Iterable[Edge], size: int) -> tuple[int, ...]:
    """The transitive closure: for each of ``size`` events the bit set of reachable events.

    Raises:
        CycleError: An event reaches itself.
    """
    after = [0] * size
    for source, target in edges:
        after[source] |= 1 << target
    for middle in range(size):
        for event in range(size):
            if after[event] >> middle & 1:
                after[event] |= after[middle]
    if any(reach >> event & 1 for event, reach in enumerate(after)):
        raise CycleError("an event precedes itself")
    return tuple(after)


def reduction(after: Sequence[int]) -> frozenset[Edge]:
    """The fewest edges with a given closure (Aho, Garey and Ullman, 1972)."""
    edges = set()
    for source, reach in enumerate(after):
        indirect = 0
        for event in _members(reach):
            indirect |= after[event]
        edges |= {(source, target) for target in _members(reach & ~indirect)}
    return frozenset(edges)


def decode(probabilities: Mapping[Edge, float], size: int, threshold: float) -> frozenset[Edge]:
    """The graph of pairwise probabilities, equal to that of ``GraphService.AggregatePairs``.

    Takes the edges above the threshold, removes the lightest edge on a cycle until there is none (proScript,
    section 5.1), and reduces the result.

    Args:
        probabilities: By ordered pair, the probability that the first event precedes the second.
        size: The number of events.
        threshold: In [0, 1].
    """
    edges = sorted((weight, edge) for edge, weight in probabilities.items() if weight > threshold)
    direct = [0] * size
    for _, (source, target) in edges:
        direct[source] |= 1 << target
    for _, (source, target) in edges:
        if _reachable(direct, target, source):
            direct[source] &= ~(1 << target)
    left = [(source, target) for source in range(size) for target in _members(direct[source])]
    return reduction(closure(left, size))


def _reachable(direct: Sequence[int], start: int, goal: int) -> bool:
    seen = frontier = 1 << start
    while frontier and not seen >> goal & 1:
        reached = 0
        for event in _members(frontier):
            reached |= direct[event]
        frontier = reached & ~seen
        seen |= reached
    return bool(seen >> goal & 1)


def _members(bits: int) -> Iterable[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


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
