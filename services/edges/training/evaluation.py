"""How good predicted edges are, and which threshold makes them best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from services.edges.order import Edge, decode
from services.edges.training.scripts import Script

THRESHOLDS = tuple(step / 20 for step in range(1, 20))
"""The thresholds that are tried: 0.05 to 0.95."""


@dataclass(frozen=True)
class EdgeScores:
    """Macro means over scripts (proScript, Table 1); precision is hits / predicted.

    Attributes:
        scripts: How many.
        f1: In [0, 1], as are all.
        precision: 0 for a script without predicted edges.
        recall: 0 for a script without edges.
        exact_matches: The number of scripts whose edges are all right.
    """

    scripts: int
    f1: float
    precision: float
    recall: float
    exact_matches: int


def score(scripts: Sequence[Script], predicted: Sequence[frozenset[Edge]]) -> EdgeScores:
    """Scores the edges predicted for each script.

    Raises:
        ValueError: There are no scripts.
    """
    if not scripts:
        raise ValueError("there is nothing to score")
    f1, precision, recall, exact = [], [], [], 0
    for script, edges in zip(scripts, predicted, strict=True):
        shared, both = len(edges & script.edges), len(edges) + len(script.edges)
        # Two graphs without edges are the same graph.
        f1.append(2 * shared / both if both else 1.0)
        precision.append(shared / len(edges) if edges else float(not both))
        recall.append(shared / len(script.edges) if script.edges else float(not both))
        exact += edges == script.edges
    count = len(scripts)
    return EdgeScores(count, fsum(f1) / count, fsum(precision) / count, fsum(recall) / count, exact)


def choose_threshold(
    scripts: Sequence[Script], probabilities: Sequence[Mapping[Edge, float]]
) -> tuple[float, EdgeScores]:
    """The threshold with the best macro F1 of the decoded edges; of equal ones that nearest to 0.5.

    Args:
        scripts: At least one.
        probabilities: For each script, how likely each event comes before each other.
    """
    tried = {
        threshold: score(
            scripts,
            [
                decode(of_script, len(script.events), threshold)
                for script, of_script in zip(scripts, probabilities, strict=True)
            ],
        )
        for threshold in THRESHOLDS
    }
    best = max(tried, key=lambda threshold: (tried[threshold].f1, -abs(threshold - 0.5)))
    return best, tried[best]
