"""Runs as ``--json`` prints them."""

from __future__ import annotations

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from dramaturg.api.evaluation.v1.run_pb2 import DatasetFormat, Run, RunIncident, RunState
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from dramaturg.results.run_text import kind_name, outcome_name, state_name
from dramaturg.summaries.samples import usage_summary


def describe(run: Run) -> dict[str, Any]:
    """A run as it is printed by ``--json`` (documented in docs/reference/cli.md; keep it stable)."""
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
        "batch_waiting": progress.batch_waiting_count,
        "interrupted": progress.interrupted_sample_count,
        "judgements": progress.judgement_count,
        "abstained": progress.abstention_count,
        "abstentions": dict(sorted(progress.abstentions_by_reason.items())),
        "coverage": progress.coverage if progress.HasField("coverage") else None,
        "gold_answers": _describe_gold_answers(progress.gold_answers)
        if progress.HasField("gold_answers")
        else None,
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


def _describe_gold_answers(figures: GoldAnswerFigures) -> dict[str, Any]:
    return {
        "samples": figures.sample_count,
        "missing": figures.missing_count,
        "missing_by_reason": dict(sorted(figures.missing_by_reason.items())),
    }


def _describe_incident(incident: RunIncident) -> dict[str, Any]:
    return {
        "description": incident.description,
        "begin_time": _time(incident.begin_time),
        "failed_attempts": incident.failed_attempt_count,
        "next_attempt_time": _time(incident.next_attempt_time),
    }


def _time(moment: Timestamp) -> str | None:
    # One that is absent reads as the epoch, at which no run was made.
    return moment.ToJsonString() if moment.ToNanoseconds() else None
