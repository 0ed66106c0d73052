"""Metrics of runs.

Gauges of the whole store are reported by the gateway that reconciles it; the others report 0, so that the sum
over all gateways is correct.
"""

from __future__ import annotations

from collections import Counter as CounterDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from dramaturg.api.evaluation.v1.run_pb2 import RunState, SampleState
from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.instruments import Counter, Gauge, Histogram
from gateway.runs.records import ACTIVE, RunRecord, SampleOutcome

RUNS = Gauge("dramaturg_runs", "Runs that have not ended, by state.", ("state",))
PENDING = Gauge("dramaturg_run_samples_pending", "Samples of running runs that are not completed.")
BATCHES = Gauge(
    "dramaturg_run_batches",
    "Batches of samples in the queue, waiting or in progress.",
    ("state",),
)
IN_PROGRESS = Gauge("dramaturg_run_samples_in_flight", "Samples of runs in progress at this gateway.")
SAMPLES = Counter("dramaturg_run_samples_total", "Completed samples of runs, by state.", ("state",))
WRITE_SECONDS = Histogram(
    "dramaturg_run_store_write_duration_seconds", "Duration of the write of a group of results."
)
ENDED = Counter("dramaturg_runs_ended_total", "Runs that ended without a cancellation, by state.", ("state",))
LEASE_SECONDS = Gauge(
    "dramaturg_lease_remaining_seconds",
    "Seconds until the lease of this gateway expires; 0 on SQLite.",
)
RENEWAL_FAILURES = Counter("dramaturg_lease_renewal_failures_total", "Failed renewals of the lease.")
TAKEOVERS = Counter("dramaturg_run_takeovers_total", "Batches and runs taken over from lost gateways.")


def state_name(state: RunState.ValueType) -> str:
    """A state as a label value, for example "running"."""
    return RunState.Name(state).removeprefix("RUN_STATE_").lower()


def show_runs(runs: Sequence[RunRecord]) -> None:
    """Sets the gauges of runs and pending samples."""
    states = CounterDict(run.state for run in runs)
    for state in ACTIVE:
        RUNS.set(states[state], state_name(state))
    counts = [run.counts for run in runs if state_name(run.state) == "running"]
    PENDING.set(sum(one.left for one in counts))


def show_batches(waiting: int, in_progress: int) -> None:
    """Sets the gauge of batches."""
    BATCHES.set(waiting, "waiting")
    BATCHES.set(in_progress, "in-progress")


def count_samples(outcomes: Iterable[SampleOutcome]) -> None:
    for outcome in outcomes:
        SAMPLES.add(SampleState.Name(outcome.sample.state).removeprefix("SAMPLE_STATE_").lower())


@contextmanager
def track_sample(run_id: str, index: int) -> Iterator[None]:
    """Counts and traces the evaluation of a sample.

    Its span begins a new trace: one trace of a run with all its samples would be too large to read.
    """
    IN_PROGRESS.add()
    attributes: tracing.Attributes = {"dramaturg.run.id": run_id, "dramaturg.sample.index": index}
    try:
        with tracing.span("evaluate sample", attributes, root=True):
            yield
    finally:
        IN_PROGRESS.add(amount=-1)
