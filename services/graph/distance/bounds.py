"""A lower bound and a good mapping in well under a millisecond for graphs of a script's size.

The bound is BRANCH (Blumenthal and Gamper, "Improved lower bounds for graph edit distance", IEEE TKDE 2018):
each event with half of each of its edges is a star; the cheapest assignment of stars to stars costs no more
than any mapping. The mapping of that assignment is then improved by 2-opt.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from services.graph.distance.problem import Mapping, Mode, Problem

MAX_ROUNDS = 50
"""After so many rounds the local search ends, improved or not."""


def branch_bound(problem: Problem) -> tuple[int, Mapping]:
    """A lower bound of the weight, and the mapping that the assignment makes.

    Every event of the first, smaller graph is mapped: to match a deleted event with an inserted one always
    saves an edit.
    """
    n1, n2 = problem.sizes
    if n1 == 0:
        return problem.constant, ()
    out1, in1 = _degrees(problem.first_edges, n1)
    out2, in2 = _degrees(problem.second_edges, n2)
    equal = np.array(problem.equal, dtype=bool)
    edit = problem.weights.edit
    # Twice the weights, so that halves of edges stay whole numbers.
    kept_ends = np.minimum.outer(out1, out2) + np.minimum.outer(in1, in2)
    lost_ends = np.abs(np.subtract.outer(out1, out2)) + np.abs(np.subtract.outer(in1, in2))
    replacement = 2 * (edit + problem.weights.replaced_event)
    if problem.edges_are_replaced:
        replacement = replacement + kept_ends * (edit + problem.weights.replaced_edge)
    matched = lost_ends * edit + np.where(equal, 0, replacement)
    inserted = 2 * edit + (out2 + in2) * edit
    cost = matched - inserted[None, :]
    bonus = anchor_bonus(problem, int(np.abs(cost).max()) * n1 + 1)
    rows, columns = linear_sum_assignment(cost - bonus * equal)
    twice = int(cost[rows, columns].sum()) + int(inserted.sum())
    return -(-twice // 2), tuple(int(k) for k in columns)


def anchor_bonus(problem: Problem, enough: int) -> int:
    """What a match of equal labels is worth in itself: where events are anchored, more than all else."""
    return enough if problem.mode is Mode.ANCHORED else 0


def improve(problem: Problem, mapping: Mapping) -> Mapping:
    """2-opt: exchanges the images of two events, or one image for an unused one, as long as that helps."""
    n1, n2 = problem.sizes
    images = [*mapping, *sorted(set(range(n2)) - set(mapping))]
    bonus = anchor_bonus(problem, problem.constant + 1)

    def value() -> int:
        anchored = sum(problem.equal[i][images[i]] for i in range(n1)) if bonus else 0
        return problem.weight(images[:n1]) - bonus * anchored

    best = value()
    for _ in range(MAX_ROUNDS):
        before = best
        for i in range(n1):
            for j in range(i + 1, n2):
                images[i], images[j] = images[j], images[i]
                found = value()
                if found < best:
                    best = found
                else:
                    images[i], images[j] = images[j], images[i]
        if best == before:
            break
    return tuple(images[:n1])


def _degrees(edges: tuple[tuple[int, int], ...], size: int) -> tuple[np.ndarray, np.ndarray]:
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return np.bincount(ends[:, 0], minlength=size), np.bincount(ends[:, 1], minlength=size)
