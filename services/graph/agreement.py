"""Selection of graphs by annotator agreement, and majority votes on pairs of scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from math import fsum
from random import Random

from services.graph.model import ScriptGraph
from services.graph.score import Choices, EmptyRule, count_edges, measure


@dataclass(frozen=True)
class Selection:
    """The result of a selection.

    Attributes:
        pairs: The F1 by pair of graph indices; ``None`` if undefined.
        chosen: The index of the graph with the highest agreement; ``None`` if no agreement is defined.
        agreement: The agreement of the chosen graph, in [0, 1].
        tied: The number of graphs with this agreement, including the chosen one.
    """

    pairs: dict[tuple[int, int], float | None]
    chosen: int | None
    agreement: float | None
    tied: int


def select(graphs: Sequence[ScriptGraph], *, mean: bool, empty_rule: EmptyRule, rng: Random) -> Selection:
    """Selects the graph with the highest agreement with the others (proScript, section 4).

    Args:
        graphs: Two or more graphs over the same events.
        mean: Whether a graph's agreement is its mean F1 with all others; otherwise its highest, so that the
            two graphs of the best pair tie.
        empty_rule: The F1 if neither graph has edges.
        rng: Breaks ties.
    """
    choices = Choices(empty_rule=empty_rule)
    pairs: dict[tuple[int, int], float | None] = {}
    for i, j in combinations(range(len(graphs)), 2):
        measures = measure(count_edges(graphs[i], graphs[j]), choices)
        pairs[i, j] = None if measures is None else measures.f1
    agreement: dict[int, float] = {}
    for index in range(len(graphs)):
        values = [f1 for pair, f1 in pairs.items() if index in pair and f1 is not None]
        if values:
            agreement[index] = fsum(values) / len(values) if mean else max(values)
    if not agreement:
        return Selection(pairs, None, None, 0)
    best = max(agreement.values())
    tied = [index for index, value in agreement.items() if value == best]
    chosen = tied[0] if len(tied) == 1 else rng.choice(tied)
    return Selection(pairs, chosen, best, len(tied))


class Preference(Enum):
    """How the first of two scripts compares with the second."""

    BETTER = "better"
    EQUAL = "equal"
    WORSE = "worse"
    UNDECIDED = "undecided"


def majority(votes: Sequence[Preference], *, split: Preference) -> Preference:
    """The preference of more than half of the votes (proScript, section 6.3), else ``split``.

    ``UNDECIDED`` votes are not counted; without other votes the result is ``UNDECIDED``.
    """
    counts = Counter(vote for vote in votes if vote is not Preference.UNDECIDED)
    if not counts:
        return Preference.UNDECIDED
    winner, count = counts.most_common(1)[0]
    return winner if 2 * count > counts.total() else split
