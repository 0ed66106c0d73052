"""What the engine and the services need of a store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import DatasetManifest, RunSample, RunSpec, RunState, SampleState
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import RerunScope, ResultFilter
from gateway.runs.records import (
    Event,
    ModelSums,
    NewRun,
    NewSample,
    RunRecord,
    SampleOutcome,
    SampleWork,
    Trouble,
)


class StoreError(RuntimeError):
    """The store cannot be used: it cannot be reached or written to. The message says which and why."""


class RequestIdReusedError(ValueError):
    """A request id was used before with another spec."""


class RunStore(Protocol):
    """Keeps runs. Methods block: call them in a thread. Each is one transaction.

    Any number of processes use one store at once. Methods that take a tenant find only that tenant's runs; a
    run of another's is as one that is not there. Every method raises StoreError where the store cannot be
    used.
    """

    def close(self) -> None:
        """Closes the connections."""

    # Runs.

    def create_run(self, run: NewRun) -> tuple[RunRecord, bool]:
        """Keeps a run in RUN_STATE_PREPARING and says whether it is new.

        A request id known to the tenant with an equal spec and content gives the run that is there.

        Raises:
            RequestIdReusedError: the request id was used with another spec.
        """

    def get_run(self, run_id: str, tenant: str | None = None) -> RunRecord | None:
        """The run. None: it is not there. Without a tenant: whosever it is."""

    def list_runs(
        self,
        tenant: str | None,
        *,
        limit: int,
        before: tuple[datetime, str] | None = None,
        states: Collection[RunState.ValueType] = (),
        labels: Mapping[str, str] | None = None,
    ) -> Sequence[RunRecord]:
        """Runs, the newest first; those older than ``before`` (creation time and id of the last one seen).

        Only those in one of the states, where any is named, and with all of the labels.
        """

    def active_runs(self) -> Sequence[RunRecord]:
        """All runs that are preparing, running or paused, whosever they are."""

    def has_active_runs(self) -> bool:
        """Whether there are any such runs."""

    def content(self, run_id: str) -> bytes:
        """The rows that the request brought."""

    def change_state(
        self,
        run_id: str,
        to: RunState.ValueType,
        *,
        expected: Collection[RunState.ValueType],
        attempt: int | None = None,
        reason: str = "",
    ) -> RunRecord | None:
        """Changes the state if it is one of those expected, in the attempt where one is named.

        Records a "state" event.

        Sets the start time with the first RUNNING and the end time with an ended state; a run begun anew
        loses its end time.

        Returns:
            The run as it then is; None where the state or attempt is another, and nothing was changed.
        """

    def update_spec(self, run_id: str, spec: RunSpec, *, expected: RunSpec | None = None) -> RunRecord | None:
        """Replaces the spec and records a "state" event.

        Returns:
            The run as it then is; None where a spec is expected and the run has another, and nothing was
            changed.
        """

    def delete_run(self, run_id: str) -> None:
        """Deletes the run with everything of it, in bounded transactions."""

    # Samples.

    def add_samples(self, run_id: str, samples: Sequence[NewSample]) -> None:
        """Adds samples of the dataset.

        Those with an index that is there are passed over, so that reading may be repeated.
        """

    def set_manifest(self, run_id: str, manifest: DatasetManifest) -> None:
        """Keeps what was read of the dataset."""

    def next_pending(self, run_id: str, after: int, limit: int) -> Sequence[int]:
        """Indices of samples that are pending, above ``after``, ascending."""

    def running_samples(self, run_id: str) -> int:
        """How many samples are begun and not done."""

    def take_samples(self, run_id: str, indices: Sequence[int], executor: str) -> Sequence[SampleWork]:
        """Of these samples those that are still pending; notes who begins them.

        A sample that was noted before by another executor, or by this one earlier, is counted as interrupted.
        """

    def finish_samples(self, run_id: str, attempt: int, outcomes: Sequence[SampleOutcome]) -> None:
        """Keeps what came of samples.

        Replaces their earlier results, updates the counts, and records a "progress" event.
        Outcomes of an attempt that is no more the run's are dropped. A sample that is done already in this
        attempt is passed over, so that nothing is counted twice.
        """

    def report_trouble(self, run_id: str, attempt: int, trouble: Trouble) -> None:
        """Keeps what the work of a run that is preparing or running fails of or waits for.

        Records a "progress" event.

        Counts are added to what was told before. It is forgotten with the next sample that succeeds and is
        not hindered, and with every change of the state.
        """

    def release_samples(self, run_id: str, indices: Sequence[int]) -> None:
        """Notes that nobody evaluates these samples any more, such as at a pause.

        Taking them again is then no interruption.
        """

    def begin_again(
        self, run_id: str, scope: RerunScope.ValueType, *, spec: RunSpec | None = None, fresh: bool = False
    ) -> RunRecord | None:
        """Begins an ended run anew: sets the samples of the scope pending and raises the attempt.

        The run is then RUNNING, or PREPARING where its dataset was not read to the end (it has no hash).
        Counts are as if the samples had not been done; usage is kept. What came of them is listed until it is
        replaced. Rows that are no valid requests stay failed.

        Args:
            run_id: The run.
            scope: Which samples.
            spec: The spec that the run gets. Absent: it keeps its own.
            fresh: Whether the repeat offset is raised.

        Returns:
            The run as it then is; None where it has not ended, and nothing was changed.
        """

    # What is read.

    def list_samples(
        self, run_id: str, *, after: int, limit: int, states: Collection[SampleState.ValueType] = ()
    ) -> Sequence[RunSample]:
        """Samples by index, above ``after``; with their results, also those of an earlier attempt."""

    def list_results(
        self,
        run_id: str,
        *,
        after: tuple[int, int],
        limit: int,
        where: ResultFilter | None = None,
        numbers_only: bool = False,
    ) -> Sequence[tuple[tuple[int, int], RunResult]]:
        """Judgements with their keys (sample index, place within the sample), by key, above ``after``."""

    def iterate_results(self, run_id: str, where: ResultFilter | None = None) -> Iterator[RunResult]:
        """All judgements, read in bounded pages."""

    def model_sums(self, run_id: str, *, together: bool = False) -> Sequence[ModelSums]:
        """What is known of each model by each measure, summed in the store.

        Together: by all measures at once, under the name "".
        """

    def model_usage(self, run_id: str) -> Mapping[str, Usage]:
        """What was spent on each model, as far as it can be told apart, reruns included."""

    def tag_names(self, run_id: str) -> Sequence[str]:
        """The names of all tags that samples of the run have, sorted."""

    def rate(self, run_id: str, seconds: float) -> float | None:
        """Samples done a second over the last so many seconds. None: not known, or it is not running."""

    # Events.

    def events_after(self, run_id: str, cursor: int, limit: int) -> Sequence[Event]:
        """Events above the cursor, in order.

        Of each kind the newest stands for all: what an event tells is how the run is now.
        """

    # Gateways.

    def renew_lease(self, executor: str, seconds: float) -> None:
        """Says that the executor lives, and will for so long."""

    def drop_lease(self, executor: str) -> None:
        """Says that the executor has stopped in order."""

    def live_executors(self) -> Sequence[str]:
        """The executors whose lease has not run out, by the store's clock."""
