"""Scores of predicted edges and the choice of the threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from dramaturg_research.training.scripts import Script
from services.edges.order import Edge, decode

THRESHOLDS = tuple(step / 20 for step in range(1, 20))
"""Candidate thresholds: 0.05 to 0.95."""


@dataclass(frozen=True)
class EdgeScores:
    """Macro means over scripts (proScript, Table 1); precision is hits / predicted.

    Attributes:
        scripts: The number of scripts.
        f1: In [0, 1].
        precision: In [0, 1]; 0 for a script without predicted edges.
        recall: In [0, 1]; 0 for a script without edges.
        exact_matches: The number of scripts with all edges correct.
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
        raise ValueError("there are no scripts to score")
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
    """The threshold with the best macro F1 of the decoded edges; ties go to the one nearest to 0.5.

    Args:
        scripts: At least one.
        probabilities: The probabilities of each script.
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
