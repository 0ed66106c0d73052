"""The store on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import IO

import sqlalchemy as sa

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
from gateway.runs.store import (
    beginning,
    deletion,
    finishing,
    following,
    leases,
    results,
    runs,
    samples,
    troubles,
)
from gateway.runs.store.base import RunStore
from gateway.runs.store.database import Database

_PAGE = 500


class SqlRunStore(RunStore):
    """``RunStore`` on the tables of ``gateway.runs.store.tables``.

    Args:
        database: Where the tables are.
        held: What keeps others from a SQLite file, until it is closed.
    """

    def __init__(self, database: Database, held: IO[str] | None = None) -> None:
        self._database = database
        self._held = held

    def close(self) -> None:
        """Closes the connections."""
        self._database.close()
        if self._held is not None:
            self._held.close()

    def create_run(self, run: NewRun) -> tuple[RunRecord, bool]:
        """Keeps a run, or finds the one that the request id made."""
        try:
            return self._database.write(lambda connection: runs.create(connection, run))
        except sa.exc.IntegrityError:  # another gateway created it between our look and our insert
            return self._database.write(lambda connection: runs.create(connection, run))

    def get_run(self, run_id: str, tenant: str | None = None) -> RunRecord | None:
        """The run."""
        return self._database.read(lambda connection: runs.find(connection, run_id, tenant))

    def list_runs(
        self,
        tenant: str | None,
        *,
        limit: int,
        before: tuple[datetime, str] | None = None,
        states: Collection[RunState.ValueType] = (),
        labels: Mapping[str, str] | None = None,
    ) -> Sequence[RunRecord]:
        """Runs, the newest first."""
        return self._database.read(
            lambda connection: runs.listed(
                connection, tenant, limit=limit, before=before, states=states, labels=labels or {}
            )
        )

    def active_runs(self) -> Sequence[RunRecord]:
        """All runs that have not ended."""
        return self._database.read(runs.active)

    def has_active_runs(self) -> bool:
        """Whether any run has not ended."""
        return self._database.read(runs.any_active)

    def content(self, run_id: str) -> bytes:
        """The rows that the request brought."""
        return self._database.read(lambda connection: runs.content(connection, run_id))

    def change_state(
        self,
        run_id: str,
        to: RunState.ValueType,
        *,
        expected: Collection[RunState.ValueType],
        attempt: int | None = None,
        reason: str = "",
    ) -> RunRecord | None:
        """Changes the state if it is one of those expected."""
        return self._database.write(
            lambda connection: runs.change_state(
                connection,
                self._database.now(connection),
                run_id,
                to,
                expected=expected,
                attempt=attempt,
                reason=reason,
            )
        )

    def update_spec(self, run_id: str, spec: RunSpec, *, expected: RunSpec | None = None) -> RunRecord | None:
        """Replaces the spec."""
        return self._database.write(lambda connection: runs.update_spec(connection, run_id, spec, expected))

    def delete_run(self, run_id: str) -> None:
        """Deletes the run: out of sight at once, then piece by piece."""
        self._database.write(lambda connection: deletion.hide(connection, run_id))
        while self._database.write(deletion.delete_piece):
            pass

    def add_samples(self, run_id: str, new: Sequence[NewSample]) -> None:
        """Adds samples of the dataset."""
        self._database.write(lambda connection: samples.add(connection, run_id, new))

    def set_manifest(self, run_id: str, manifest: DatasetManifest) -> None:
        """Keeps what was read of the dataset."""
        self._database.write(lambda connection: runs.set_manifest(connection, run_id, manifest))

    def next_pending(self, run_id: str, after: int, limit: int) -> Sequence[int]:
        """Indices of samples that are pending."""
        return self._database.read(lambda connection: samples.next_pending(connection, run_id, after, limit))

    def running_samples(self, run_id: str) -> int:
        """How many samples are begun and not done."""
        return self._database.read(lambda connection: samples.running(connection, run_id))

    def take_samples(self, run_id: str, indices: Sequence[int], executor: str) -> Sequence[SampleWork]:
        """Of these samples those that are still pending."""
        return self._database.write(lambda connection: samples.take(connection, run_id, indices, executor))

    def finish_samples(self, run_id: str, attempt: int, outcomes: Sequence[SampleOutcome]) -> None:
        """Keeps what came of samples."""
        self._database.write(
            lambda connection: finishing.finish(
                connection, self._database.now(connection), run_id, attempt, outcomes
            )
        )

    def report_trouble(self, run_id: str, attempt: int, trouble: Trouble) -> None:
        """Keeps what the work of a run fails of."""
        self._database.write(lambda connection: troubles.report(connection, run_id, attempt, trouble))

    def release_samples(self, run_id: str, indices: Sequence[int]) -> None:
        """Notes that nobody evaluates these samples any more."""
        self._database.write(lambda connection: samples.release(connection, run_id, indices))

    def begin_again(
        self, run_id: str, scope: RerunScope.ValueType, *, spec: RunSpec | None = None, fresh: bool = False
    ) -> RunRecord | None:
        """Sets the samples of the scope pending in a new attempt."""
        return self._database.write(
            lambda connection: beginning.begin_again(
                connection, self._database.now(connection), run_id, scope, spec, fresh=fresh
            )
        )

    def list_samples(
        self, run_id: str, *, after: int, limit: int, states: Collection[SampleState.ValueType] = ()
    ) -> Sequence[RunSample]:
        """Samples with their results."""
        return self._database.read(
            lambda connection: samples.listed(connection, run_id, after=after, limit=limit, states=states)
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
        """Judgements with their keys."""
        return self._database.read(
            lambda connection: results.listed(
                connection, run_id, after=after, limit=limit, where=where, numbers_only=numbers_only
            )
        )

    def iterate_results(self, run_id: str, where: ResultFilter | None = None) -> Iterator[RunResult]:
        """All judgements, read in bounded pages."""
        after = (-1, -1)
        while page := self.list_results(run_id, after=after, limit=_PAGE, where=where):
            yield from (result for _, result in page)
            after = page[-1][0]

    def model_sums(self, run_id: str, *, together: bool = False) -> Sequence[ModelSums]:
        """What is known of each model."""
        return self._database.read(
            lambda connection: results.model_sums(connection, run_id, together=together)
        )

    def model_usage(self, run_id: str) -> Mapping[str, Usage]:
        """What was spent on each model."""
        return self._database.read(lambda connection: results.model_usage(connection, run_id))

    def tag_names(self, run_id: str) -> Sequence[str]:
        """The names of all tags."""
        names: set[str] = set()
        after: int | None = -1
        while after is not None:
            found, after = self._database.read(partial(samples.tag_names, run_id=run_id, after=after))
            names |= found
        return sorted(names)

    def rate(self, run_id: str, seconds: float) -> float | None:
        """Samples done a second."""
        return self._database.read(
            lambda connection: following.rate(connection, self._database.now(connection), run_id, seconds)
        )

    def events_after(self, run_id: str, cursor: int, limit: int) -> Sequence[Event]:
        """Events above the cursor."""
        return self._database.read(lambda connection: following.events_after(connection, run_id, cursor))[
            :limit
        ]

    def renew_lease(self, executor: str, seconds: float) -> None:
        """Says that the executor lives."""
        self._database.write(
            lambda connection: leases.renew(connection, self._database.now(connection), executor, seconds)
        )

    def drop_lease(self, executor: str) -> None:
        """Says that the executor has stopped in order."""
        self._database.write(lambda connection: leases.drop(connection, executor))

    def live_executors(self) -> Sequence[str]:
        """The executors whose lease has not run out."""
        return self._database.read(lambda connection: leases.live(connection, self._database.now(connection)))
