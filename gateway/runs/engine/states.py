"""What the states of a run mean for the engine."""

from __future__ import annotations

from gateway.runs.records import ACTIVE, RunRecord


def is_under_way(run: RunRecord | None, attempt: int) -> bool:
    """Whether an attempt at a run has not ended: it is there, active, and was not begun anew."""
    return run is not None and run.attempt == attempt and run.state in ACTIVE


def is_prepared(run: RunRecord) -> bool:
    """Whether the dataset was read to its end."""
    return bool(run.manifest.sha256)
