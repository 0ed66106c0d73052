"""Solvers in separate processes, because HiGHS cannot be interrupted; their tasks, as JSON.

The serving process does not import solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.graph.cycles import Weighted
from services.graph.distance.problem import Problem

READY = {"ready": True}
"""The message of a process that has loaded its modules."""


def distance_task(problem: Problem) -> dict[str, Any]:
    """The task of ``distance.search.search``."""
    return {
        "task": "distance",
        "sizes": problem.sizes,
        "first_edges": problem.first_edges,
        "second_edges": problem.second_edges,
        "equal": problem.equal,
        "mode": problem.mode.value,
    }


def feedback_task(edges: Sequence[Weighted], size: int) -> dict[str, Any]:
    """The task of ``solver.cycles.minimum_feedback_arc_set``."""
    return {"task": "feedback", "edges": edges, "size": size}
