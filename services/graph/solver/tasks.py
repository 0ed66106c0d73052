"""The tasks of the solver processes, as JSON. The serving process makes them and never imports a solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.graph.cycles import Weighted
from services.graph.distance.problem import Problem

READY = {"ready": True}
"""What a process says when it has loaded what it needs."""


def distance_task(problem: Problem) -> dict[str, Any]:
    """The task that ``distance.search.search`` does."""
    return {
        "task": "distance",
        "sizes": problem.sizes,
        "first_edges": problem.first_edges,
        "second_edges": problem.second_edges,
        "equal": problem.equal,
        "mode": problem.mode.value,
    }


def feedback_task(edges: Sequence[Weighted], size: int) -> dict[str, Any]:
    """The task that ``solving.feedback.break_least`` does."""
    return {"task": "feedback", "edges": edges, "size": size}
