"""The edit distance of two graphs, exact: by enumeration where mappings are few, else by a linear program.

Graphs of up to eight events have at most 40,320 mappings. Enumerating them takes one to eight milliseconds, a
program some twenty-five.

Larger graphs first get a lower bound and a good mapping.

The bound is BRANCH (Blumenthal and Gamper, "Improved lower bounds for graph edit distance", IEEE TKDE 2018):
each event with half of each of its edges is a star; the cheapest assignment of stars to stars costs no more
than any mapping. The mapping of that assignment is then improved by 2-opt.

The exact edit distance is a mixed-integer linear program, solved by HiGHS. The model is F2+: F2 of Lerouge,
Abu-Aisheh, Raveaux, Heroux and Adam ("New binary linear programming formulation to compute the graph edit
distance", Pattern Recognition 2017) with its edge constraints stated for both graphs (D'Ascenzo, Meffert,
Mutzel and Rossi, PVLDB 2025). ``x[i, k]`` says that event ``i`` is matched with event ``k``, ``y[a, b]`` that
edge ``a`` is kept as edge ``b``. Only ``x`` must be whole: given ``x``, whole ``y`` cost least.

It is solved twice. First the cost alone is minimised, below the cost of a mapping that is known already.
Then, with the cost held at its optimum, the tie rule is. On pairs of 30 events that takes half as long as one
weighted objective, and the distance is proven before the tie is.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp
from scipy.sparse import csr_array

from services.graph.distance.problem import Edits, Mapping, Mode, Problem

MAX_MAPPINGS = math.factorial(8)
"""The maximum number of mappings that are enumerated, in search of the best."""

MAX_EDGE_PAIRS = 40_000
"""The maximum number of edge pairs; larger programs need too much memory."""

_ROUNDING = 1e-4
"""Tolerance for the solver's bound; objective values are integers."""

Vector = npt.NDArray[np.float64]
_EdgePair = tuple[tuple[int, int], tuple[int, int]]
MAX_ROUNDS = 50
"""The maximum number of rounds of local search."""


@dataclass(frozen=True)
class Answer:
    """The solver's result: the best mapping, if any, and a lower bound of the objective, if known."""

    mapping: Mapping | None
    lower: int | None


class Program:
    """The linear program of one problem."""

    def __init__(self, problem: Problem, pairs: list[_EdgePair], anchored: int) -> None:
        n1, n2 = problem.sizes
        weights = problem.weights
        self._problem = problem
        self._matches = n1 * n2
        event_replaced = np.array([not equal for row in problem.equal for equal in row], dtype=float)
        edge_replaced = np.array([problem.edge_weight(a, b) > 0 for a, b in pairs], dtype=float)
        # A match saves a deletion and an insertion, and may cost a replacement.
        self._cost: Vector = np.concatenate([event_replaced, edge_replaced]) - 2.0
        self._ties: Vector = np.concatenate(
            [event_replaced * weights.replaced_event, edge_replaced * weights.replaced_edge]
        )
        self._most_cost = problem.cost_of(problem.constant)
        self._rules = _rules(problem, pairs, anchored)

    @classmethod
    def of(cls, problem: Problem, anchored: int) -> Program | None:
        """States a problem; ``None`` where the program would be too large.

        Args:
            problem: The problem; its first graph has events.
            anchored: The most events with equal labels that a mapping can match; ``Mode.ANCHORED`` holds it.
        """
        loops = [
            {edge for edge in edges if edge[0] == edge[1]}
            for edges in (problem.first_edges, problem.second_edges)
        ]
        if len(problem.first_edges) * len(problem.second_edges) > MAX_EDGE_PAIRS:
            return None
        pairs = [
            (a, b)
            for a in problem.first_edges
            for b in problem.second_edges
            if (a in loops[0]) == (b in loops[1])
        ]
        return cls(problem, pairs, anchored)

    def least_cost(self, *, lower: int, upper: int, time_limit: float) -> Answer:
        """Minimises the cost between two bounds of it, the upper one that of a known mapping."""
        below = LinearConstraint(self._cost[None, :], -np.inf, upper - self._most_cost + 0.5)
        answer = self._minimise(self._cost, below, spread=self._most_cost - lower, time_limit=time_limit)
        return Answer(answer.mapping, None if answer.lower is None else answer.lower + self._most_cost)

    def least_ties(self, *, cost: int, upper: int, time_limit: float) -> Answer:
        """Minimises the tie rule's part of the weight among mappings of the given, least cost."""
        rows = np.vstack([self._cost, self._ties])
        held = LinearConstraint(rows, [cost - self._most_cost, -np.inf], [cost - self._most_cost, upper])
        return self._minimise(self._ties, held, spread=upper, time_limit=time_limit)

    def _minimise(
        self, objective: Vector, extra: LinearConstraint, *, spread: int, time_limit: float
    ) -> Answer:
        n1, n2 = self._problem.sizes
        integrality = np.zeros(len(objective), dtype=np.int64)
        integrality[: self._matches] = 1
        result = milp(
            objective,
            integrality=integrality,
            bounds=Bounds(0, 1),
            constraints=[self._rules, extra],
            # Objectives are whole: a gap below 1 is a proof. HiGHS takes the gap relative to the objective
            # only.
            options={"time_limit": max(0.0, time_limit), "mip_rel_gap": 0.999 / max(1, spread)},
        )
        bound = result.get("mip_dual_bound")
        lower = math.ceil(bound - _ROUNDING) if bound is not None and math.isfinite(bound) else None
        if result.x is None:
            return Answer(None, lower)
        chosen = np.asarray(result.x[: self._matches]).reshape(n1, n2).argmax(axis=1)
        return Answer(tuple(int(k) for k in chosen), lower)


def _rules(problem: Problem, pairs: list[_EdgePair], anchored: int) -> LinearConstraint:
    """What makes ``x`` a mapping of all events of the first graph, and ``y`` the edges that it keeps."""
    n1, n2 = problem.sizes
    rows = _Rows()
    for i in range(n1):
        rows.add({i * n2 + k: 1.0 for k in range(n2)}, 1.0, 1.0)
    for k in range(n2):
        rows.add({i * n2 + k: 1.0 for i in range(n1)}, 0.0, 1.0)
    if problem.mode is Mode.ANCHORED:
        equal = {i * n2 + k: 1.0 for i in range(n1) for k in range(n2) if problem.equal[i][k]}
        rows.add(equal, anchored, anchored)
    # An edge is kept only where its ends are matched with the other's ends, seen from either graph.
    kept: dict[tuple[object, ...], dict[int, float]] = {}
    for column, (a, b) in enumerate(pairs, start=n1 * n2):
        starts, ends = a[0] * n2 + b[0], a[1] * n2 + b[1]
        kept.setdefault((1, a, "from", b[0]), {starts: -1.0})[column] = 1.0
        kept.setdefault((1, a, "to", b[1]), {ends: -1.0})[column] = 1.0
        kept.setdefault((2, b, "from", a[0]), {starts: -1.0})[column] = 1.0
        kept.setdefault((2, b, "to", a[1]), {ends: -1.0})[column] = 1.0
    for row in kept.values():
        rows.add(row, -np.inf, 0.0)
    return rows.constraint(n1 * n2 + len(pairs))


class _Rows:
    """Collects the rows of a sparse constraint matrix."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._bounds: list[tuple[float, float]] = []

    def add(self, row: dict[int, float], lower: float, upper: float) -> None:
        self._rows += [len(self._bounds)] * len(row)
        self._columns += row
        self._values += row.values()
        self._bounds.append((lower, upper))

    def constraint(self, width: int) -> LinearConstraint:
        matrix = csr_array((self._values, (self._rows, self._columns)), shape=(len(self._bounds), width))
        return LinearConstraint(matrix, *np.array(self._bounds).T)


def best_of_all(problem: Problem) -> Mapping:
    """The mapping of the least weight, by enumeration."""
    n1, n2 = problem.sizes
    images, weights = _mappings(n1, n2), problem.weights
    adjacent = np.zeros((n2, n2), dtype=bool)
    for source, target in problem.second_edges:
        adjacent[source, target] = True
    replaced = ~np.array(problem.equal, dtype=bool).reshape(n1, n2)[np.arange(n1), images]
    replacement = weights.edit + weights.replaced_event + anchor_bonus(problem, problem.constant + 1)
    found = replaced.sum(axis=1) * replacement
    for u, v in problem.first_edges:
        kept = adjacent[images[:, u], images[:, v]]
        found -= kept * (2 * weights.edit)
        if problem.edges_are_replaced:
            found += (kept & (replaced[:, u] | replaced[:, v])) * (weights.edit + weights.replaced_edge)
    return tuple(images[found.argmin()].tolist())


@lru_cache(maxsize=8)
def _mappings(n1: int, n2: int) -> npt.NDArray[np.int8]:
    """All mappings of ``n1`` events to different ones of ``n2``, one a row."""
    every = itertools.chain.from_iterable(itertools.permutations(range(n2), n1))
    return np.fromiter(every, dtype=np.int8).reshape(math.perm(n2, n1), n1)


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


def search(problem: Problem, time_limit: float, *, enumerated: int = MAX_MAPPINGS) -> Iterator[Solution]:
    """Yields solutions, each at least as good as the one before; the last is the answer.

    Args:
        problem: The problem.
        time_limit: Seconds after which the exact search should end.
        enumerated: The maximum number of mappings that are enumerated.
    """
    deadline = time.monotonic() + time_limit
    if math.perm(problem.sizes[1], problem.sizes[0]) <= enumerated:
        best = best_of_all(problem)
        edits = problem.edits(best)
        yield Solution(best, edits, edits.cost, edits_proven=True)
        return
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
