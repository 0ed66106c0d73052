"""The interface of the run store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeRegistration
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_OUTCOME_UNSPECIFIED,
    DatasetManifest,
    RunOutcome,
    RunSample,
    RunSpec,
    RunState,
    SampleState,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import RerunScope, ResultFilter
from gateway.runs.records import (
    DatasetRecord,
    Event,
    Incident,
    Label,
    LabelSetRecord,
    ModelSums,
    NewDataset,
    NewLabelItem,
    NewLabelSet,
    NewRun,
    RegisteredJudge,
    RunRecord,
    SampleOutcome,
    SampleRow,
    SampleWork,
    SeenJudge,
    Spending,
)


class RequestIdReusedError(ValueError):
    """A request id was used before with another spec."""


class DatasetOffsetError(ValueError):
    """Bytes do not follow those received.

    Args:
        received: The number of bytes received.
    """

    def __init__(self, received: int) -> None:
        super().__init__(f"{received} bytes are received")
        self.received = received


class DatasetQuotaError(ValueError):
    """The datasets of a tenant would exceed its quota."""


class JudgeInUseError(ValueError):
    """Registered judges need a judge.

    Args:
        panels: The names of the panels that it is a member of.
        shadows: The names of its shadows.
    """

    def __init__(self, panels: Sequence[str], shadows: Sequence[str]) -> None:
        super().__init__(f"panels {panels} and shadows {shadows} use the judge")
        self.panels = panels
        self.shadows = shadows


class JudgeMissingError(ValueError):
    """A judge that a registration needs is not registered.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the judge {name!r} is not registered")
        self.name = name


class RunStore(Protocol):
    """Stores runs. All methods block and are thread-safe; each is one transaction unless it says otherwise.

    Any number of processes use one store at once. A write takes effect once, even if the connection is lost
    during its commit. A method with a tenant treats the runs of other tenants as
    absent. Each method raises StoreError if the store is unavailable.
    """

    def close(self) -> None:
        """Closes the connections."""

    # Runs.

    def create_run(self, run: NewRun) -> tuple[RunRecord, bool]:
        """Creates a run in RUN_STATE_PREPARING. Returns it, and whether it is new.

        A request id that the tenant used with an equal spec and content returns the existing run.

        Raises:
            RequestIdReusedError: The request id was used with another spec.
        """

    def get_run(self, run_id: str, tenant: str | None = None) -> RunRecord | None:
        """The run, of any tenant if none is given; None if it does not exist."""

    def list_runs(
        self,
        tenant: str | None,
        *,
        limit: int,
        before: tuple[datetime, str] | None = None,
        states: Collection[RunState.ValueType] = (),
        labels: Mapping[str, str] | None = None,
        ids: Collection[str] = (),
    ) -> Sequence[RunRecord]:
        """Runs, the newest first, older than ``before`` (creation time and id of the last one seen).

        Restricted to runs in one of the states and with one of the ids, if any is given, and with all of the
        labels.
        """

    def active_runs(self) -> Sequence[RunRecord]:
        """The preparing, running and paused runs of all tenants."""

    def has_active_runs(self) -> bool:
        """Whether there are such runs."""

    def content(self, run_id: str) -> bytes:
        """The rows that the request of a run carried."""

    def change_state(
        self,
        run_id: str,
        to: RunState.ValueType,
        *,
        expected: Collection[RunState.ValueType],
        attempt: int | None = None,
        reason: str = "",
        outcome: RunOutcome.ValueType = RUN_OUTCOME_UNSPECIFIED,
    ) -> RunRecord | None:
        """Changes the state if it is one of those expected and the attempt, if given, is the current one.

        Records a "state" event. Sets the start time at the first RUNNING and the end time at an ended state.

        Returns:
            The run after the change; None if nothing was changed.
        """

    def update_spec(self, run_id: str, spec: RunSpec, *, expected: RunSpec | None = None) -> RunRecord | None:
        """Replaces the spec and records a "state" event.

        Returns:
            The run after the change; None if the run has another spec than the expected one.
        """

    def delete_run(self, run_id: str) -> None:
        """Deletes the run: hides it in one transaction, then deletes its rows in bounded ones."""

    def purge_deleted(self) -> bool:
        """Deletes a bounded number of rows of hidden runs. Returns whether rows may be left.

        Completes deletions that were interrupted.
        """

    # Samples.

    def add_samples(self, run_id: str, samples: Sequence[SampleRow]) -> None:
        """Adds samples of the dataset. Skips indices that exist, so that reading may be repeated."""

    def begin_preparation(self, run_id: str) -> int:
        """Records that a dataset is about to be read.

        Returns:
            How many times its reading was begun without an end since a row was last added, this one included.
        """

    def end_preparation(self, run_id: str) -> None:
        """Records that the reading of a dataset ended, whether successfully or not."""

    def set_manifest(self, run_id: str, manifest: DatasetManifest) -> None:
        """Stores the manifest of the dataset."""

    def next_pending(self, run_id: str, after: int, limit: int) -> Sequence[int]:
        """The indices of pending samples above ``after``, ascending."""

    def running_samples(self, run_id: str) -> int:
        """The number of samples that are started and not done."""

    def take_samples(self, run_id: str, indices: Sequence[int], executor_id: str) -> Sequence[SampleWork]:
        """The pending ones of these samples; marks them as started by the executor.

        A sample that was started before, by any executor, counts as interrupted.
        """

    def finish_samples(self, run_id: str, attempt: int, outcomes: Sequence[SampleOutcome]) -> bool:
        """Stores the outcomes of samples; returns False if the run is gone or in another attempt.

        Replaces their earlier outcomes, updates the counts and the spending of the tenant, and records a
        "progress" event. Drops outcomes of another attempt than the current one, and of samples that are done
        in it, so that nothing counts twice.
        """

    def add_usage(self, run_id: str, tenant: str, usage: Usage) -> None:
        """Adds the usage of samples without an outcome to a run, if any, and to a tenant's spending."""

    def report_incident(self, run_id: str, attempt: int, incident: Incident) -> None:
        """Stores the failures of a preparing or running run, and records a "progress" event.

        Counts are added to those reported before. The incident ends with the next sample that succeeds and is
        not degraded, and with each change of the state.
        """

    def release_samples(self, run_id: str, indices: Sequence[int]) -> None:
        """Marks samples as not started, so that taking them again is no interruption."""

    def begin_again(
        self, run_id: str, scope: RerunScope.ValueType, *, spec: RunSpec | None = None, fresh: bool = False
    ) -> RunRecord | None:
        """Begins a new attempt of an ended run, in which the samples of the scope are pending.

        The run becomes RUNNING, or PREPARING if its dataset was not read to the end. The counts exclude the
        samples of the scope; the usage is kept. Their outcomes are listed until they are replaced. Invalid
        rows stay failed.

        Args:
            run_id: The run.
            scope: The samples.
            spec: The new spec. Absent: unchanged.
            fresh: Whether the repeat offset is raised.

        Returns:
            The run after the change; None if it has not ended, and nothing was changed.
        """

    # Results.

    def unjudged_sample(self, run_id: str, *, gold_answer: bool = False) -> RunSample | None:
        """A sample with the commonest failure, else the commonest reason of abstentions; None: neither.

        Args:
            run_id: The run.
            gold_answer: Whether it is one with the commonest reason of missing gold answers instead.
        """

    def list_samples(
        self,
        run_id: str,
        *,
        after: int,
        limit: int,
        states: Collection[SampleState.ValueType] = (),
        max_bytes: int | None = None,
    ) -> Sequence[RunSample]:
        """Samples by index, above ``after``, with their results, also those of an earlier attempt.

        The last one is that with which they exceed ``max_bytes`` together, if any does.
        """

    def list_results(
        self,
        run_id: str,
        *,
        after: tuple[int, int],
        limit: int,
        where: ResultFilter | None = None,
        numbers_only: bool = False,
    ) -> Sequence[tuple[tuple[int, int], RunResult]]:
        """Judgements with their keys (sample index, position within the sample), by key, above ``after``."""

    def iterate_results(self, run_id: str, where: ResultFilter | None = None) -> Iterator[RunResult]:
        """All judgements, read in bounded pages."""

    def model_sums(self, run_id: str, *, together: bool = False) -> Sequence[ModelSums]:
        """Sums for each model and measure, or for each model under the measure "" if ``together``."""

    def model_usage(self, run_id: str) -> Mapping[str, Usage]:
        """The usage of each model, as far as it can be attributed, reruns included."""

    def tag_names(self, run_id: str) -> Sequence[str]:
        """The names of all tags of samples, sorted."""

    def rate(self, run_id: str, seconds: float) -> float | None:
        """Samples per second over the last ``seconds``; None if unknown, or the run is not running."""

    # Judges.

    def note_judge(self, run_id: str, seen: SeenJudge) -> Sequence[SeenJudge]:
        """Records the identity of a judge that a sample of a run was sent to.

        Returns:
            The other identities of that judge in the run, if this one is new; else none.
        """

    def seen_judges(self, run_id: str) -> Sequence[SeenJudge]:
        """The identities of the judges of a run, by role and judge, then in the order seen."""

    def registered_judges(self) -> Sequence[RegisteredJudge]:
        """The judges that tenants registered, by tenant, role and name."""

    def registered_judge(self, tenant: str, role: str, name: str) -> RegisteredJudge | None:
        """A judge that a tenant registered; None if it does not exist."""

    def register_judge(
        self, tenant: str, judge: JudgeRegistration, most: int, needed: Collection[str] = ()
    ) -> bool | None:
        """Adds a judge of a tenant.

        Args:
            tenant: The tenant.
            judge: The judge.
            most: The most judges of the tenant.
            needed: The registered judges of the role that its panel and shadow name.

        Returns:
            Whether it was added; False if the tenant has one of that role and name, None if it has ``most``
            judges.

        Raises:
            JudgeMissingError: A needed judge was removed.
        """

    def update_judge(
        self, tenant: str, judge: JudgeRegistration, revision: int, needed: Collection[str] = ()
    ) -> bool:
        """Replaces a judge of a tenant if it has the revision. Returns whether it was replaced.

        Raises:
            JudgeMissingError: A needed judge (see ``register_judge``) was removed.
        """

    def remove_judge(self, tenant: str, role: str, name: str) -> bool:
        """Removes a judge of a tenant. Returns whether it existed.

        Raises:
            JudgeInUseError: A registered panel or shadow of the tenant needs it.
        """

    # Events.

    def events_after(self, run_id: str, cursor: int, limit: int) -> Sequence[Event]:
        """Events above the cursor, in order.

        Only the newest of each kind: an event refers to the current state of the run.
        """

    # Gateways.

    def renew_lease(self, executor_id: str, seconds: float) -> None:
        """Extends the lease of an executor to ``seconds`` from now."""

    def drop_lease(self, executor_id: str) -> None:
        """Ends the lease of an executor."""

    def live_executors(self) -> Sequence[str]:
        """The executors whose lease has not expired, by the clock of the store."""

    # Uploaded datasets.

    def create_dataset(self, new: NewDataset, quota_bytes: int | None = None) -> tuple[DatasetRecord, bool]:
        """Creates a dataset without content. Returns it, or the existing one, and whether it is new.

        Args:
            new: The dataset.
            quota_bytes: The most bytes of the tenant's datasets together. None: any number.

        Raises:
            DatasetQuotaError: The datasets would have more bytes.
        """

    def get_dataset(self, dataset_id: str, tenant: str) -> DatasetRecord | None:
        """The dataset; None if the tenant has none of this id."""

    def list_datasets(self, tenant: str, *, limit: int, before: int | None = None) -> Sequence[DatasetRecord]:
        """Datasets, the newest first, with numbers below ``before``."""

    def append_dataset(
        self, dataset_id: str, tenant: str, position: int, content: bytes
    ) -> DatasetRecord | None:
        """Appends bytes. Returns the dataset; None if it does not exist.

        Raises:
            DatasetOffsetError: The position is not the number of bytes received.
        """

    def set_dataset_ready(self, dataset_id: str, tenant: str) -> DatasetRecord | None:
        """Records that the content has the SHA-256. Returns the dataset; None if it does not exist."""

    def dataset_content(self, dataset: DatasetRecord) -> Iterator[bytes]:
        """The received content in pieces, each read in a transaction of its own.

        Raises:
            KeyError: From the iteration: the dataset was deleted.
        """

    def delete_dataset(self, dataset_id: str, tenant: str) -> None:
        """Deletes a dataset: hides it in one transaction, then deletes its content in bounded ones."""

    def purge_datasets(self, expiry_seconds: float | None = None) -> bool:
        """Deletes a bounded part of deleted datasets and expired uploads. Returns whether any may be left.

        Args:
            expiry_seconds: The time without progress after which an upload expires. None: uploads are kept.
        """

    # Labels.

    def run_requests(self, run_id: str, indices: Sequence[int]) -> Mapping[int, bytes]:
        """The requests of samples, by index."""

    def create_label_set(self, new: NewLabelSet, most: int) -> LabelSetRecord | None:
        """Creates a label set with its items. A request id that the tenant used returns the existing set.

        Returns:
            The set; None if the tenant has ``most`` sets.
        """

    def get_label_set(self, label_set_id: str, tenant: str) -> LabelSetRecord | None:
        """The label set; None if the tenant has none of this id."""

    def requested_label_set(self, request_id: str, tenant: str) -> LabelSetRecord | None:
        """The label set that was created with a request id; None: there is none."""

    def list_label_sets(
        self, tenant: str, *, limit: int, before: int | None = None
    ) -> Sequence[LabelSetRecord]:
        """Label sets, the newest first, with numbers below ``before``."""

    def list_label_items(
        self, number: int, *, after: int, limit: int, annotator: str = "", unlabelled_only: bool = False
    ) -> Sequence[NewLabelItem]:
        """Items by position, above ``after``, with the labels of an annotator."""

    def write_label(
        self, number: int, position: int, annotator: str, label: str, note: str, most_annotators: int
    ) -> bool:
        """Stores a label in place of an earlier one, or withdraws it if it is empty.

        Returns:
            Whether it was stored; False if the set has ``most_annotators`` other annotators.
        """

    def list_labels(self, number: int) -> Sequence[Label]:
        """The labels of a set, by position and annotator."""

    def delete_label_set(self, number: int) -> None:
        """Deletes a label set with its items and labels."""

    # Spending.

    def add_spending(self, tenant: str, spent: Spending) -> None:
        """Adds an amount outside of runs to what a tenant spent today (UTC, by the clock of the store)."""

    def spent_today(self, tenant: str) -> Spending:
        """What a tenant spent today through runs and outside of them."""
