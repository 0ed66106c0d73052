"""The run store on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import IO, Any

import sqlalchemy as sa

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
from dramaturg.database.database import Database
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
from gateway.runs.store import (
    attempts,
    datasets,
    judges,
    labels,
    leases,
    open_reader,
    progress,
    registrations,
    results,
    runs,
    samples,
    spending,
)
from gateway.runs.store.base import RunStore

_PAGE = 500


class SqlRunStore(RunStore):
    """``RunStore`` on the tables of ``gateway.runs.store.tables``.

    Args:
        database: The database of the tables.
        lock: Locks a SQLite file for this process until it is closed.
    """

    def __init__(self, database: Database, lock: IO[str] | None = None) -> None:
        self._database = database
        self._lock = lock

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets a reader."""
        return open_reader, (self._database.url,)

    def close(self) -> None:
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    def create_run(self, run: NewRun) -> tuple[RunRecord, bool]:
        try:
            return self._database.write(lambda connection: runs.create(connection, run))
        except sa.exc.IntegrityError:  # another gateway inserted it after our read
            return self._database.write(lambda connection: runs.create(connection, run))

    def get_run(self, run_id: str, tenant: str | None = None) -> RunRecord | None:
        return self._database.read(lambda connection: runs.find(connection, run_id, tenant))

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
        return self._database.read(
            lambda connection: runs.list_runs(
                connection, tenant, limit=limit, before=before, states=states, labels=labels or {}, ids=ids
            )
        )

    def active_runs(self) -> Sequence[RunRecord]:
        return self._database.read(runs.list_active)

    def has_active_runs(self) -> bool:
        return self._database.read(runs.has_active)

    def content(self, run_id: str) -> bytes:
        return self._database.read(lambda connection: runs.content(connection, run_id))

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
        return self._database.write(
            lambda connection: runs.change_state(
                connection,
                self._database.now(connection),
                run_id,
                to,
                expected=expected,
                attempt=attempt,
                reason=reason,
                outcome=outcome,
            )
        )

    def update_spec(self, run_id: str, spec: RunSpec, *, expected: RunSpec | None = None) -> RunRecord | None:
        return self._database.write(lambda connection: runs.update_spec(connection, run_id, spec, expected))

    def delete_run(self, run_id: str) -> None:
        self._database.write(lambda connection: runs.hide(connection, run_id))
        while self.purge_deleted():
            pass

    def purge_deleted(self) -> bool:
        return self._database.write(runs.purge)

    def add_samples(self, run_id: str, new: Sequence[SampleRow]) -> None:
        self._database.write(lambda connection: samples.add(connection, run_id, new))

    def begin_preparation(self, run_id: str) -> int:
        return self._database.write(lambda connection: runs.begin_preparation(connection, run_id))

    def end_preparation(self, run_id: str) -> None:
        self._database.write(lambda connection: runs.end_preparation(connection, run_id))

    def set_manifest(self, run_id: str, manifest: DatasetManifest) -> None:
        self._database.write(lambda connection: runs.set_manifest(connection, run_id, manifest))

    def next_pending(self, run_id: str, after: int, limit: int) -> Sequence[int]:
        return self._database.read(lambda connection: samples.next_pending(connection, run_id, after, limit))

    def running_samples(self, run_id: str) -> int:
        return self._database.read(lambda connection: samples.running(connection, run_id))

    def take_samples(self, run_id: str, indices: Sequence[int], executor_id: str) -> Sequence[SampleWork]:
        return self._database.write(lambda connection: samples.take(connection, run_id, indices, executor_id))

    def finish_samples(self, run_id: str, attempt: int, outcomes: Sequence[SampleOutcome]) -> bool:
        return self._database.write(
            lambda connection: attempts.finish(
                connection, self._database.now(connection), run_id, attempt, outcomes
            )
        )

    def add_usage(self, run_id: str, tenant: str, usage: Usage) -> None:
        self._database.write(
            lambda connection: attempts.add_run_usage(
                connection, self._database.now(connection), run_id, tenant, usage
            )
        )

    def report_incident(self, run_id: str, attempt: int, incident: Incident) -> None:
        self._database.write(
            lambda connection: progress.report_incident(connection, run_id, attempt, incident)
        )

    def release_samples(self, run_id: str, indices: Sequence[int]) -> None:
        self._database.write(lambda connection: samples.release(connection, run_id, indices))

    def begin_again(
        self, run_id: str, scope: RerunScope.ValueType, *, spec: RunSpec | None = None, fresh: bool = False
    ) -> RunRecord | None:
        return self._database.write(
            lambda connection: attempts.begin_again(
                connection, self._database.now(connection), run_id, scope, spec, fresh=fresh
            )
        )

    def list_samples(
        self,
        run_id: str,
        *,
        after: int,
        limit: int,
        states: Collection[SampleState.ValueType] = (),
        max_bytes: int | None = None,
    ) -> Sequence[RunSample]:
        return self._database.read(
            lambda connection: samples.list_samples(
                connection, run_id, after=after, limit=limit, states=states, max_bytes=max_bytes
            )
        )

    def list_results(
        self,
        run_id: str,
        *,
        after: tuple[int, int],
        limit: int,
        where: ResultFilter | None = None,
        numbers_only: bool = False,
    ) -> Sequence[tuple[tuple[int, int], RunResult]]:
        return self._database.read(
            lambda connection: results.list_results(
                connection, run_id, after=after, limit=limit, where=where, numbers_only=numbers_only
            )
        )

    def iterate_results(self, run_id: str, where: ResultFilter | None = None) -> Iterator[RunResult]:
        after = (-1, -1)
        while page := self.list_results(run_id, after=after, limit=_PAGE, where=where):
            yield from (result for _, result in page)
            after = page[-1][0]

    def model_sums(self, run_id: str, *, together: bool = False) -> Sequence[ModelSums]:
        return self._database.read(
            lambda connection: results.model_sums(connection, run_id, together=together)
        )

    def model_usage(self, run_id: str) -> Mapping[str, Usage]:
        return self._database.read(lambda connection: results.model_usage(connection, run_id))

    def unjudged_sample(self, run_id: str, *, gold_answer: bool = False) -> RunSample | None:
        return self._database.read(
            lambda connection: results.unjudged_sample(connection, run_id, gold_answer=gold_answer)
        )

    def tag_names(self, run_id: str) -> Sequence[str]:
        names: set[str] = set()
        after: int | None = -1
        while after is not None:
            found, after = self._database.read(partial(samples.tag_names, run_id=run_id, after=after))
            names |= found
        return sorted(names)

    def rate(self, run_id: str, seconds: float) -> float | None:
        return self._database.read(
            lambda connection: progress.rate(connection, self._database.now(connection), run_id, seconds)
        )

    def note_judge(self, run_id: str, seen: SeenJudge) -> Sequence[SeenJudge]:
        return self._database.write(
            lambda connection: judges.note(connection, self._database.now(connection), run_id, seen)
        )

    def seen_judges(self, run_id: str) -> Sequence[SeenJudge]:
        return self._database.read(lambda connection: judges.of_run(connection, run_id))

    def registered_judges(self) -> Sequence[RegisteredJudge]:
        return self._database.read(registrations.find_all)

    def registered_judge(self, tenant: str, role: str, name: str) -> RegisteredJudge | None:
        return self._database.read(lambda connection: registrations.find(connection, tenant, role, name))

    def register_judge(
        self, tenant: str, judge: JudgeRegistration, most: int, needed: Collection[str] = ()
    ) -> bool | None:
        return self._database.write(
            lambda connection: registrations.add(connection, tenant, judge, most, needed)
        )

    def update_judge(
        self, tenant: str, judge: JudgeRegistration, revision: int, needed: Collection[str] = ()
    ) -> bool:
        return self._database.write(
            lambda connection: registrations.replace(connection, tenant, judge, revision, needed)
        )

    def remove_judge(self, tenant: str, role: str, name: str) -> bool:
        return self._database.write(lambda connection: registrations.remove(connection, tenant, role, name))

    def events_after(self, run_id: str, cursor: int, limit: int) -> Sequence[Event]:
        return self._database.read(lambda connection: progress.events_after(connection, run_id, cursor))[
            :limit
        ]

    def renew_lease(self, executor_id: str, seconds: float) -> None:
        self._database.write(
            lambda connection: leases.renew(connection, self._database.now(connection), executor_id, seconds)
        )

    def drop_lease(self, executor_id: str) -> None:
        self._database.write(lambda connection: leases.drop(connection, executor_id))

    def live_executors(self) -> Sequence[str]:
        return self._database.read(lambda connection: leases.live(connection, self._database.now(connection)))

    def create_dataset(self, new: NewDataset, quota_bytes: int | None = None) -> tuple[DatasetRecord, bool]:
        def work(connection: sa.Connection) -> tuple[DatasetRecord, bool]:
            return datasets.create(connection, self._database.now(connection), new, quota_bytes)

        try:
            return self._database.write(work)
        except sa.exc.IntegrityError:  # another gateway inserted it after our read
            return self._database.write(work)

    def get_dataset(self, dataset_id: str, tenant: str) -> DatasetRecord | None:
        return self._database.read(lambda connection: datasets.find(connection, dataset_id, tenant))

    def list_datasets(self, tenant: str, *, limit: int, before: int | None = None) -> Sequence[DatasetRecord]:
        return self._database.read(
            lambda connection: datasets.list_datasets(connection, tenant, limit, before)
        )

    def append_dataset(
        self, dataset_id: str, tenant: str, position: int, content: bytes
    ) -> DatasetRecord | None:
        return self._database.write(
            lambda connection: datasets.append(
                connection, self._database.now(connection), dataset_id, tenant, position, content
            )
        )

    def set_dataset_ready(self, dataset_id: str, tenant: str) -> DatasetRecord | None:
        return self._database.write(
            lambda connection: datasets.set_ready(
                connection, self._database.now(connection), dataset_id, tenant
            )
        )

    def dataset_content(self, dataset: DatasetRecord) -> Iterator[bytes]:
        position = 0
        while position < dataset.received:
            piece = self._database.read(partial(datasets.chunk, number=dataset.number, position=position))
            if not piece:
                raise KeyError(dataset.id)
            yield piece
            position += len(piece)

    def delete_dataset(self, dataset_id: str, tenant: str) -> None:
        self._database.write(lambda connection: datasets.hide(connection, dataset_id, tenant))
        while self.purge_datasets():
            pass

    def purge_datasets(self, expiry_seconds: float | None = None) -> bool:
        return self._database.write(
            lambda connection: datasets.purge(connection, self._database.now(connection), expiry_seconds)
        )

    def run_requests(self, run_id: str, indices: Sequence[int]) -> Mapping[int, bytes]:
        return self._database.read(lambda connection: samples.requests(connection, run_id, indices))

    def create_label_set(self, new: NewLabelSet, most: int) -> LabelSetRecord | None:
        def work(connection: sa.Connection) -> LabelSetRecord | None:
            return labels.create(connection, self._database.now(connection), new, most)

        try:
            return self._database.write(work)
        except sa.exc.IntegrityError:  # another gateway inserted it after our read
            return self._database.write(work)

    def get_label_set(self, label_set_id: str, tenant: str) -> LabelSetRecord | None:
        return self._database.read(lambda connection: labels.find(connection, label_set_id, tenant))

    def requested_label_set(self, request_id: str, tenant: str) -> LabelSetRecord | None:
        return self._database.read(lambda connection: labels.find_requested(connection, request_id, tenant))

    def list_label_sets(
        self, tenant: str, *, limit: int, before: int | None = None
    ) -> Sequence[LabelSetRecord]:
        return self._database.read(lambda connection: labels.list_sets(connection, tenant, limit, before))

    def list_label_items(
        self, number: int, *, after: int, limit: int, annotator: str = "", unlabelled_only: bool = False
    ) -> Sequence[NewLabelItem]:
        return self._database.read(
            lambda connection: labels.list_items(connection, number, after, limit, annotator, unlabelled_only)
        )

    def write_label(
        self, number: int, position: int, annotator: str, label: str, note: str, most_annotators: int
    ) -> bool:
        def work(connection: sa.Connection) -> bool:
            written = Label(position, annotator, label, note, labels.time(self._database.now(connection)))
            return labels.write(connection, number, written, most_annotators)

        return self._database.write(work)

    def list_labels(self, number: int) -> Sequence[Label]:
        return self._database.read(lambda connection: labels.list_labels(connection, number))

    def delete_label_set(self, number: int) -> None:
        self._database.write(lambda connection: labels.delete(connection, number))

    def add_spending(self, tenant: str, spent: Spending) -> None:
        self._database.write(
            lambda connection: spending.add(connection, self._database.now(connection), tenant, spent)
        )

    def spent_today(self, tenant: str) -> Spending:
        return self._database.read(
            lambda connection: spending.of_day(connection, self._database.now(connection), tenant)
        )
