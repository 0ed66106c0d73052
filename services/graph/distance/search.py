"""From a problem to its distance: bounds first, then the exact program for as long as there is time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from services.graph.distance.bounds import branch_bound, improve
from services.graph.distance.problem import Edits, Mapping, Problem
from services.graph.distance.program import Answer, Program


@dataclass(frozen=True)
class Solution:
    """The best mapping found so far and what is known of the best there is.

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
        """What the tie rule minimises."""
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
