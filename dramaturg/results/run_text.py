"""State and progress of a run as text."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from dramaturg.api.evaluation.v1.run_pb2 import Run, RunOutcome, RunProgress, RunState
from dramaturg.results.names import stated_name, value_name
from dramaturg.results.quantities import consumption, duration

IDLE_SECONDS = 30.0
"""Seconds without an ended sample after which this is reported."""


def state_name(state: int) -> str:
    """A state as it is shown, such as "RUNNING"; one that is not known here by number."""
    return value_name(RunState, state)


def outcome_name(outcome: int) -> str:
    """An outcome as it is shown, such as "LOW_COVERAGE"; empty where there is none."""
    return stated_name(RunOutcome, outcome)


def kind_name(run: Run) -> str:
    """The name of the kind that a run evaluates."""
    return str(run.spec.WhichOneof("evaluation") or "")


def describe_progress(progress: RunProgress, state: int = RunState.RUN_STATE_RUNNING) -> str:
    """The progress of a run in one line; the rate only while it runs."""
    running = state == RunState.RUN_STATE_RUNNING
    done = progress.succeeded_count + progress.failed_count
    share = f" ({done / progress.sample_count:.1%})" if progress.sample_count else ""
    parts = [f"{done:,} of {progress.sample_count:,} samples{share}"]
    if progress.failed_count:
        parts.append(f"{progress.failed_count:,} failed")
    if running and progress.HasField("samples_per_second"):
        parts.append(f"{progress.samples_per_second:.3g}/s")
    if running and progress.HasField("remaining_time"):
        parts.append(f"{duration(progress.remaining_time.ToNanoseconds() / 1e9)} left")
    if running and progress.batch_waiting_count:
        parts.append(f"{progress.batch_waiting_count:,} wait for batches")
    parts.append(f"{progress.judgement_count:,} judgements")
    parts.append(f"{progress.abstention_count:,} abstained")
    if progress.HasField("coverage") and progress.coverage < 1:
        parts.append(f"coverage {progress.coverage:.1%}")
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
        waits = progress.batch_waiting_count and not progress.running_count
        if not progress.HasField("last_advance_time") or idle < IDLE_SECONDS or waits:
            return ""
        return f"no sample was done for {duration(idle)}; {progress.running_count:,} are in progress"
    incident, limits = progress.incident, "".join(f"; {one}" for one in progress.model_waits)
    failing = duration(max(0.0, now - _seconds(incident.begin_time)))
    if not incident.failed_attempt_count:
        return f"for {failing} no sample was done: {incident.description}{limits}"
    wait = _seconds(incident.next_attempt_time) - now
    again = f", the next is in {duration(wait)}" if wait >= 1 else ""
    count = f"{incident.failed_attempt_count:,} in all"
    return f"for {failing} every attempt has failed, {count}{again}: {incident.description}{limits}"


def _seconds(moment: Timestamp) -> float:
    return moment.ToNanoseconds() / 1e9
