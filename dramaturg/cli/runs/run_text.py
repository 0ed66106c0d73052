"""Runs as they are printed."""

from __future__ import annotations

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from dramaturg.api.evaluation.v1.run_pb2 import (
    DatasetFormat,
    Run,
    RunIncident,
    RunOutcome,
    RunProgress,
    RunState,
)
from dramaturg.cli.cells import consumption, duration, percent
from dramaturg.summaries.samples import usage_summary

IDLE_SECONDS = 30.0
"""Seconds without an ended sample after which this is reported."""


def state_name(state: int) -> str:
    """A state as it is shown, such as "RUNNING"; one that is not known here by number."""
    known = RunState.DESCRIPTOR.values_by_number.get(state)
    return f"STATE_{state}" if known is None else str(known.name).removeprefix("RUN_STATE_")


def outcome_name(outcome: int) -> str:
    """An outcome as it is shown, such as "LOW_COVERAGE"; empty where there is none."""
    known = RunOutcome.DESCRIPTOR.values_by_number.get(outcome)
    if known is None:
        return f"OUTCOME_{outcome}"
    return str(known.name).removeprefix("RUN_OUTCOME_") if outcome else ""


def kind_name(run: Run) -> str:
    """The name of the kind that a run evaluates."""
    return str(run.spec.WhichOneof("evaluation") or "")


def describe(run: Run) -> dict[str, Any]:
    """A run as it is printed by ``--json`` (documented in docs/cli.md; keep it stable)."""
    progress, spec = run.progress, run.spec
    running = run.state == RunState.RUN_STATE_RUNNING
    known_rate = running and progress.HasField("samples_per_second")
    known_rest = running and progress.HasField("remaining_time")
    return {
        "id": run.id,
        "name": spec.display_name,
        "evaluation": kind_name(run),
        "state": state_name(run.state),
        "state_reason": run.state_reason,
        "outcome": outcome_name(run.outcome),
        "attempt": run.attempt,
        "models": list(spec.models),
        "judges": [{"role": one.role, "judge": one.judge, "model": one.model} for one in spec.judges],
        "seen_judges": [
            {
                "role": one.role,
                "judge": one.judge,
                "name": one.name,
                "version": one.version,
                "first_seen_time": _time(one.first_seen_time),
            }
            for one in run.judges
        ],
        "labels": dict(sorted(spec.labels.items())),
        "samples": progress.sample_count,
        "succeeded": progress.succeeded_count,
        "failed": progress.failed_count,
        "failures": dict(sorted(progress.failures_by_reason.items())),
        "running": progress.running_count,
        "interrupted": progress.interrupted_sample_count,
        "judgements": progress.judgement_count,
        "abstained": progress.abstention_count,
        "abstentions": dict(sorted(progress.abstentions_by_reason.items())),
        "coverage": progress.coverage if progress.HasField("coverage") else None,
        "usage": usage_summary(progress.usage),
        "samples_per_second": progress.samples_per_second if known_rate else None,
        "remaining_seconds": progress.remaining_time.ToNanoseconds() / 1e9 if known_rest else None,
        "incident": _describe_incident(progress.incident) if progress.HasField("incident") else None,
        "last_advance_time": _time(progress.last_advance_time),
        "dataset": {
            "uri": run.dataset.uri,
            "format": DatasetFormat.Name(run.dataset.format).removeprefix("DATASET_FORMAT_"),
            "sha256": run.dataset.sha256,
            "bytes": run.dataset.byte_count,
            "rows": run.dataset.row_count,
            "invalid_rows": run.dataset.invalid_row_count,
            "row_errors": [
                {"line": error.line, "field": error.field, "description": error.description}
                for error in run.dataset.row_errors
            ],
        },
        "create_time": _time(run.create_time),
        "start_time": _time(run.start_time),
        "update_time": _time(run.update_time),
        "end_time": _time(run.end_time),
        "version": run.created_by_version,
    }


def describe_progress(progress: RunProgress, state: int = RunState.RUN_STATE_RUNNING) -> str:
    """The progress of a run in one line; the rate only while it runs."""
    running = state == RunState.RUN_STATE_RUNNING
    done = progress.succeeded_count + progress.failed_count
    share = f" ({percent(done / progress.sample_count)})" if progress.sample_count else ""
    parts = [f"{done:,} of {progress.sample_count:,} samples{share}"]
    if progress.failed_count:
        parts.append(f"{progress.failed_count:,} failed")
    if running and progress.HasField("samples_per_second"):
        parts.append(f"{progress.samples_per_second:.3g}/s")
    if running and progress.HasField("remaining_time"):
        parts.append(f"{duration(progress.remaining_time.ToNanoseconds() / 1e9)} left")
    parts.append(f"{progress.judgement_count:,} judgements")
    parts.append(f"{progress.abstention_count:,} abstained")
    if progress.HasField("coverage") and progress.coverage < 1:
        parts.append(f"coverage {percent(progress.coverage)}")
    return ", ".join(parts) + consumption(progress.usage)


def describe_hindrance(progress: RunProgress, now: float) -> str:
    """What keeps a run from getting further, in one line; empty where nothing does.

    Args:
        progress: How far it is.
        now: The time, in seconds since 1970.
    """
    if not progress.HasField("incident") and progress.model_waits:
        return "; ".join(progress.model_waits)
    if not progress.HasField("incident"):
        idle = now - _seconds(progress.last_advance_time)
        if not progress.HasField("last_advance_time") or idle < IDLE_SECONDS:
            return ""
        return f"no sample was done for {duration(idle)}; {progress.running_count:,} are in progress"
    incident = progress.incident
    failing = duration(max(0.0, now - _seconds(incident.begin_time)))
    if not incident.failed_attempt_count:
        return f"for {failing} no attempt has ended: {incident.description}"
    wait = _seconds(incident.next_attempt_time) - now
    again = f", the next is in {duration(wait)}" if wait >= 1 else ""
    count = f"{incident.failed_attempt_count:,} in all"
    return f"for {failing} every attempt has failed, {count}{again}: {incident.description}"


def _describe_incident(incident: RunIncident) -> dict[str, Any]:
    return {
        "description": incident.description,
        "begin_time": _time(incident.begin_time),
        "failed_attempts": incident.failed_attempt_count,
        "next_attempt_time": _time(incident.next_attempt_time),
    }


def _seconds(moment: Timestamp) -> float:
    return moment.ToNanoseconds() / 1e9


def _time(moment: Timestamp) -> str | None:
    # One that is absent reads as the epoch, at which no run was made.
    return moment.ToJsonString() if moment.ToNanoseconds() else None
