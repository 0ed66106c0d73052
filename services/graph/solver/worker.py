"""The solver process: reads one task a line from standard input, writes one answer a line to standard output.

A task is ``{"task": NAME, "time_limit": SECONDS, ...}``. Intermediate results of a task have ``"final":
false``. The first line is ``READY``. The process ends when standard input closes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from services.graph.cycles import FeedbackArcSet, Weighted, events_on_cycles, remove_lightest
from services.graph.distance.problem import Mode, Problem
from services.graph.distance.search import search
from services.graph.solver import READY


def minimum_feedback_arc_set(edges: Sequence[Weighted], size: int, time_limit: float) -> FeedbackArcSet:
    """Computes a minimum feedback arc set, one strongly connected component at a time.

    Each component is a linear ordering problem over its pairs of events, with a constraint for each triple
    (Groetschel, Juenger and Reinelt, 1984). If time runs out, or the lightest-edge rule is as good, the
    result is that of the rule.
    """
    fallback = remove_lightest(edges, size)
    loops = [edge for edge in edges if edge[0] == edge[1]]
    removed, proven = list(loops), True
    components = events_on_cycles(edges)
    for members in components:
        inside = [edge for edge in edges if edge[0] != edge[1] and {edge[0], edge[1]} <= set(members)]
        before = _order(members, inside, time_limit / len(components))
        if before is None:
            return fallback
        order, is_proven = before
        proven = proven and is_proven
        removed += [edge for edge in inside if order[edge[0]] > order[edge[1]]]
    found = FeedbackArcSet(sorted(removed), proven)
    return found if proven or found.weight < fallback.weight else fallback


def _order(
    members: list[int], edges: Sequence[Weighted], time_limit: float
) -> tuple[dict[int, int], bool] | None:
    """The positions of events in an optimal order, and whether it is proven."""
    pairs = {pair: column for column, pair in enumerate(combinations(members, 2))}
    # x = 1: the first of the pair comes first. The weight of an edge counts where its target comes first.
    cost = np.zeros(len(pairs))
    for source, target, weight in edges:
        if source < target:
            cost[pairs[source, target]] -= weight
        else:
            cost[pairs[target, source]] += weight
    triples = list(combinations(members, 3))
    values = np.tile([1.0, 1.0, -1.0], len(triples))
    columns = [pairs[pair] for i, j, k in triples for pair in ((i, j), (j, k), (i, k))]
    rows = np.repeat(np.arange(len(triples)), 3)
    constraints = []
    if triples:
        matrix = csr_array((values, (rows, columns)), shape=(len(triples), len(pairs)))
        constraints.append(LinearConstraint(matrix, 0, 1))
    result = milp(
        cost,
        integrality=np.ones(len(pairs), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=constraints,
        options={"time_limit": max(0.0, time_limit), "mip_rel_gap": 0.0},
    )
    if result.x is None:
        return None
    wins = dict.fromkeys(members, 0)
    for (first, second), column in pairs.items():
        wins[first if result.x[column] > 0.5 else second] += 1
    ranked = sorted(members, key=lambda event: -wins[event])
    return {event: place for place, event in enumerate(ranked)}, result.status == 0


if __name__ == "__main__":
    # Ctrl-C on a terminal is for the service, which ends this process after its drain, also while the modules
    # below are loaded. In a session of its own, Linux would schedule it as the service's equal despite its
    # niceness.
    os.setpgrp()


NICENESS = 5
"""Solvers have a lower priority than the serving process."""


def _distance(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    first, second = task["sizes"]
    problem = Problem(
        sizes=(first, second),
        first_edges=tuple((u, v) for u, v in task["first_edges"]),
        second_edges=tuple((u, v) for u, v in task["second_edges"]),
        equal=tuple(tuple(row) for row in task["equal"]),
        mode=Mode(task["mode"]),
    )
    for solution in search(problem, task["time_limit"]):
        yield asdict(solution)


def _feedback(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    edges = [(source, target, weight) for source, target, weight in task["edges"]]
    yield asdict(minimum_feedback_arc_set(edges, task["size"], task["time_limit"]))


TASKS: dict[str, Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]] = {
    "distance": _distance,
    "feedback": _feedback,
}


def main() -> None:
    """Processes tasks until standard input closes."""
    os.nice(NICENESS)
    # HiGHS may write to standard output; results use a duplicate descriptor.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    print(json.dumps(READY), file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        last: dict[str, Any] = {}
        for answer in TASKS[task["task"]](task):
            last = answer
            print(json.dumps({"final": False, **answer}), file=answers, flush=True)
        print(json.dumps({"final": True, **last}), file=answers, flush=True)


if __name__ == "__main__":
    main()
