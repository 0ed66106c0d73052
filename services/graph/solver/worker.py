"""The solver process: reads one task a line from standard input, writes one answer a line to standard output.

A task is ``{"task": NAME, "time_limit": SECONDS, ...}``. Intermediate results of a task have ``"final":
false``. The first line is ``READY``. The process ends when standard input closes.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    # Ctrl-C on a terminal is for the service, which ends this process after its drain, also while the modules
    # below are loaded. In a session of its own, Linux would schedule it as the service's equal despite its
    # niceness.
    os.setpgrp()

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from services.graph.distance.problem import Mode, Problem
from services.graph.distance.search import search
from services.graph.solver.cycles import minimum_feedback_arc_set
from services.graph.solver.tasks import READY

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
