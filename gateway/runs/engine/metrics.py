"""What the engine counts of runs.

How many runs and samples there are is a matter of the store: the gateway that looks after it tells, the
others say zero, so that the sum over all gateways is right.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from dramaturg.api.evaluation.v1.run_pb2 import RunState, SampleState
from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.instruments import Counter, Gauge, Histogram
from gateway.runs.records import ACTIVE, RunRecord, SampleOutcome

RUNS = Gauge("dramaturg_runs", "Runs that have not ended, by state.", ("state",))
PENDING = Gauge("dramaturg_run_samples_pending", "Samples of running runs that are not done.")
BATCHES = Gauge(
    "dramaturg_run_batches",
    "Batches of samples in the queue, by whether a gateway has taken them.",
    ("state",),
)
UNDER_WAY = Gauge("dramaturg_run_samples_in_flight", "Samples of runs that this gateway evaluates.")
SAMPLES = Counter(
    "dramaturg_run_samples_total", "Samples of runs that were done, by how they ended.", ("state",)
)
WRITE_SECONDS = Histogram(
    "dramaturg_run_store_write_duration_seconds", "How long it took to keep a group of results."
)
ENDED = Counter("dramaturg_runs_ended_total", "Runs that came to an end of themselves, by state.", ("state",))
LEASE_SECONDS = Gauge(
    "dramaturg_lease_remaining_seconds",
    "How long the others still believe that this gateway lives; 0 where there are no others.",
)
RENEWAL_FAILURES = Counter("dramaturg_lease_renewal_failures_total", "Renewals of the lease that failed.")
TAKEOVERS = Counter(
    "dramaturg_run_takeovers_total", "Batches and runs taken over from gateways that are gone."
)


def state_name(state: RunState.ValueType) -> str:
    """A state as it stands in a label, such as "running"."""
    return RunState.Name(state).removeprefix("RUN_STATE_").lower()


def show_runs(runs: Sequence[RunRecord]) -> None:
    """Shows how many runs there are, and what is left of them to do."""
    states = Tally(run.state for run in runs)
    for state in ACTIVE:
        RUNS.set(states[state], state_name(state))
    counts = [run.counts for run in runs if state_name(run.state) == "running"]
    PENDING.set(sum(one.samples - one.succeeded - one.failed for one in counts))


def show_batches(waiting: int, under_way: int) -> None:
    """Shows how many batches wait and are worked on."""
    BATCHES.set(waiting, "waiting")
    BATCHES.set(under_way, "under-way")


def count_samples(outcomes: Iterable[SampleOutcome]) -> None:
    """Counts samples that are done."""
    for outcome in outcomes:
        SAMPLES.add(SampleState.Name(outcome.sample.state).removeprefix("SAMPLE_STATE_").lower())


@contextmanager
def sampling(run_id: str, index: int) -> Iterator[None]:
    """Observes the evaluation of a sample.

    Its span begins a trace of its own: that of a run with all its samples would be too large to be read.
    """
    UNDER_WAY.add()
    attributes: tracing.Attributes = {"dramaturg.run.id": run_id, "dramaturg.sample.index": index}
    try:
        with tracing.span("evaluate sample", attributes, root=True):
            yield
    finally:
        UNDER_WAY.add(amount=-1)
