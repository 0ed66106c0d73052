"""A lower bound and a good mapping in well under a millisecond for graphs of a script's size.

The bound is BRANCH (Blumenthal and Gamper, "Improved lower bounds for graph edit distance", IEEE TKDE 2018):
each event with half of each of its edges is a star; the cheapest assignment of stars to stars costs no more
than any mapping. The mapping of that assignment is then improved by 2-opt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from services.graph.distance.problem import Edits, Mapping, Mode, Problem
from services.graph.distance.program import Answer, Program

MAX_ROUNDS = 50
"""The maximum number of rounds of local search."""


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
    """The bonus of matching equal labels, which dominates all other terms for anchored events."""
    return enough if problem.mode is Mode.ANCHORED else 0


def improve(problem: Problem, mapping: Mapping) -> Mapping:
    """Improves a mapping by 2-opt: swaps the images of two events, or an image with an unused event."""
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


@dataclass(frozen=True)
class Solution:
    """The best mapping found so far, and the bounds of the optimum.

    Attributes:
        mapping: The best mapping found.
        edits: Its edits; their sum is an upper bound of the distance.
        lower: A lower bound of the distance.
        edits_proven: Whether no mapping is better by the tie rule either.
    """

    mapping: Mapping
    edits: Edits
    lower: int
    edits_proven: bool

    @property
    def proven(self) -> bool:
        """Whether the cost of the edits is the distance."""
        return self.lower == self.edits.cost


def search(problem: Problem, time_limit: float) -> Iterator[Solution]:
    """Yields solutions, each at least as good as the one before; the last is the answer.

    Args:
        problem: The problem.
        time_limit: Seconds after which the exact search should end.
    """
    deadline = time.monotonic() + time_limit
    least_weight, mapping = branch_bound(problem)
    anchored = sum(problem.equal[i][k] for i, k in enumerate(mapping))
    state = _State(problem, improve(problem, mapping), problem.cost_of(least_weight))
    yield state.solution(edits_proven=problem.weight(state.mapping) == least_weight)
    if problem.weight(state.mapping) == least_weight:
        return
    program = Program.of(problem, anchored)
    if program is None:
        return
    if not state.cost_proven:
        state.learn_cost(
            program.least_cost(lower=state.lower, upper=state.cost, time_limit=deadline - time.monotonic())
        )
        yield state.solution(edits_proven=False)
    if state.cost_proven and state.ties == 0:
        yield state.solution(edits_proven=True)
    elif state.cost_proven:
        answer = program.least_ties(cost=state.cost, upper=state.ties, time_limit=deadline - time.monotonic())
        state.take(answer.mapping)
        yield state.solution(edits_proven=answer.lower is not None and answer.lower >= state.ties)


@dataclass
class _State:
    """The best mapping so far and the lower bound of the cost."""

    problem: Problem
    mapping: Mapping
    lower: int

    @property
    def cost(self) -> int:
        return self.problem.edits(self.mapping).cost

    @property
    def ties(self) -> int:
        """The value that the tie rule minimizes."""
        return self.problem.weight(self.mapping) % self.problem.weights.edit

    @property
    def cost_proven(self) -> bool:
        return self.cost == self.lower

    def take(self, mapping: Mapping | None) -> None:
        if mapping is not None and self.problem.weight(mapping) < self.problem.weight(self.mapping):
            self.mapping = mapping

    def learn_cost(self, answer: Answer) -> None:
        self.take(answer.mapping)
        if answer.lower is not None:
            self.lower = min(max(self.lower, answer.lower), self.cost)

    def solution(self, *, edits_proven: bool) -> Solution:
        return Solution(self.mapping, self.problem.edits(self.mapping), self.lower, edits_proven)
