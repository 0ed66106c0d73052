"""The requests of a ledger that wait for batches of providers, and the batches.

A request is claimed for a batch, and the batch recorded, before it is sent. Every method is one transaction
that may be repeated, and may be called by several processes at once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.database.database import Database


class RequestState(StrEnum):
    """The states of a request."""

    WAITING = "waiting"
    """It waits for a batch that is to be sent."""
    SENT = "sent"
    """It is in a batch."""
    LIVE = "live"
    """No batch answers it: its call is made live."""
    ANSWERED = "answered"
    """It has an answer, whose cost no caller was told."""
    TOLD = "told"
    """It has an answer, which is of no use and whose cost a caller was told."""


class BatchRequest(NamedTuple):
    """A request as a call finds it."""

    state: RequestState
    answer: str
    """The answer as JSON. Empty: there is none."""


class WaitingRequest(NamedTuple):
    """A request to record."""

    fingerprint: str
    provider: str
    address: str
    model: str
    call: str
    """The call as JSON."""
    asked_at: float
    """Seconds since 1970, as all times."""
    deadline: float
    """When it no longer waits."""
    state: RequestState = RequestState.WAITING
    answer: str | None = None


class Group(NamedTuple):
    """Requests that one batch may have."""

    provider: str
    address: str
    model: str
    deadline: float


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch."""

    id: str
    """Ours, by which it is found at the provider."""
    process: str
    """The process that sends it."""
    provider: str
    address: str
    remote: str
    """The provider's id. Empty: it may not have arrived."""
    deadline: float
    created_at: float
    misses: int
    """How often it was looked for at the provider in vain."""
    cancelled: bool
    """Whether its cancellation was requested."""


def tables(metadata: sa.MetaData) -> tuple[sa.Table, sa.Table]:
    """The tables of requests and of batches."""
    requests = sa.Table(
        "dramaturg_batch_requests",
        metadata,
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("provider", sa.Text, nullable=False),
        # What tells its answers from those of other endpoints.
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        # JSON: the call.
        sa.Column("call", sa.Text, nullable=False),
        sa.Column("asked_at", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("batch", sa.Text),
        # JSON: how a response to it is read.
        sa.Column("reading", sa.Text),
        # JSON: the answer.
        sa.Column("answer", sa.Text),
        sa.Index("dramaturg_batch_requests_by_state", "state", "created_at"),
        sa.Index("dramaturg_batch_requests_by_batch", "batch"),
    )
    batches = sa.Table(
        "dramaturg_batches",
        metadata,
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("process", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        # The provider's id. Absent: it may not have arrived.
        sa.Column("remote", sa.Text),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("looked_at", sa.Double, nullable=False),
        sa.Column("misses", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cancelled", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    return requests, batches


class BatchStore:
    """The transactions. They block.

    Args:
        database: The database.
        requests: The table of requests.
        batches: The table of batches.
    """

    def __init__(self, database: Database, requests: sa.Table, batches: sa.Table) -> None:
        self._database = database
        self._requests = requests
        self._batches = batches
        new: Any = (sqlite.insert if database.is_sqlite else postgresql.insert)(requests)
        sooner = sa.and_(
            requests.c.state == RequestState.WAITING, new.excluded.deadline < requests.c.deadline
        )
        self._ask = new.on_conflict_do_update(
            index_elements=["fingerprint"],
            set_={
                "asked_at": new.excluded.asked_at,
                "deadline": sa.case((sooner, new.excluded.deadline), else_=requests.c.deadline),
            },
        )
        self._tell = new.on_conflict_do_update(
            index_elements=["fingerprint"],
            set_={"state": new.excluded.state, "answer": new.excluded.answer},
        )
        self._end = requests.delete().where(requests.c.fingerprint == sa.bindparam("ended"))

    def changes(
        self, asked: Iterable[WaitingRequest], told: Iterable[WaitingRequest], ended: Collection[str]
    ) -> Iterator[tuple[sa.Executable, list[Any]]]:
        """The statements that record requests, in order, with the rows of each.

        Args:
            asked: Requests that calls wait for. Those that are recorded are noted as asked for again.
            told: Requests with answers of no use.
            ended: The fingerprints of requests whose answers are stored as completions.
        """
        for statement, given in ((self._ask, asked), (self._tell, told)):
            latest = {one.fingerprint: one for one in given}
            if latest:
                # All writers use one order, which avoids deadlocks.
                ordered = [latest[fingerprint] for fingerprint in sorted(latest)]
                yield statement, [{**one._asdict(), "created_at": one.asked_at} for one in ordered]
        if ended:
            yield self._end, [{"ended": fingerprint} for fingerprint in sorted(ended)]

    def find(self, fingerprints: Sequence[str]) -> Mapping[str, BatchRequest]:
        """The requests that are recorded."""
        columns = self._requests.c
        query = sa.select(columns.fingerprint, columns.state, columns.answer)
        query = query.where(columns.fingerprint.in_(fingerprints))
        return self._database.read(
            lambda connection: {
                row.fingerprint: BatchRequest(RequestState(row.state), row.answer or "")
                for row in connection.execute(query)
            }
        )

    def is_used(self) -> bool:
        """Whether any request or batch is recorded."""
        queries = [sa.select(table.c[0]).limit(1) for table in (self._requests, self._batches)]
        return self._database.read(
            lambda connection: any(connection.execute(query).first() is not None for query in queries)
        )

    def release(self, fingerprint: str, *states: RequestState) -> bool:
        """Has the call of a request made live if it is in one of the states; returns whether it is now."""
        columns = self._requests.c
        change = self._requests.update().where(columns.fingerprint == fingerprint, columns.state.in_(states))

        def work(connection: sa.Connection) -> bool:
            connection.execute(change.values(state=RequestState.LIVE))
            found = sa.select(columns.state).where(columns.fingerprint == fingerprint)
            return connection.execute(found).scalar_one_or_none() in {None, RequestState.LIVE}

        return self._database.write_repeatable(work)

    def ready(self, now: float, gather_seconds: float) -> Sequence[Group]:
        """The groups with requests that are to be sent now."""
        columns = self._requests.c
        query = sa.select(columns.provider, columns.address, columns.model, columns.deadline).distinct()
        query = query.where(*self._ready(now, gather_seconds))
        return self._database.read(lambda connection: [Group(*row) for row in connection.execute(query)])

    def peek(self, group: Group, now: float, gather_seconds: float, most: int) -> Sequence[tuple[str, str]]:
        """The fingerprints and calls of requests of a group that are to be sent, the oldest first."""
        columns = self._requests.c
        query = (
            sa.select(columns.fingerprint, columns.call)
            .where(*self._ready(now, gather_seconds), *self._of(group))
            .order_by(columns.created_at, columns.fingerprint)
            .limit(most)
        )
        return self._database.read(lambda connection: [(row[0], row[1]) for row in connection.execute(query)])

    def claim(self, batch: Batch, readings: Mapping[str, str]) -> Sequence[str]:
        """Records a batch that is about to be sent; returns the fingerprints of its requests.

        Args:
            batch: The batch.
            readings: How the responses to its requests are read, by fingerprint. Those that no longer wait
                are left out.
        """
        columns = self._requests.c
        mine = self._requests.update().where(
            columns.fingerprint == sa.bindparam("one"), columns.state == RequestState.WAITING
        )
        mine = mine.values(state=RequestState.SENT, batch=batch.id, reading=sa.bindparam("how"))
        recorded = sqlite.insert if self._database.is_sqlite else postgresql.insert

        def work(connection: sa.Connection) -> Sequence[str]:
            values = {
                "id": batch.id,
                "process": batch.process,
                "provider": batch.provider,
                "address": batch.address,
                "deadline": batch.deadline,
                "created_at": batch.created_at,
                "looked_at": batch.created_at,
            }
            connection.execute(recorded(self._batches).values(values).on_conflict_do_nothing())
            connection.execute(mine, [{"one": one, "how": how} for one, how in sorted(readings.items())])
            found = sa.select(columns.fingerprint).where(columns.batch == batch.id)
            return connection.execute(found).scalars().all()

        return self._database.write_repeatable(work)

    def sent(self, batch_id: str, remote: str) -> None:
        """Records the provider's id of a batch."""
        change = self._batches.update().where(self._batches.c.id == batch_id).values(remote=remote)
        self._database.write_repeatable(lambda connection: connection.execute(change))

    def due(self, providers: Collection[tuple[str, str]], now: float, seconds: float) -> Sequence[Batch]:
        """The batches of these providers that no process looked at for some seconds. They count as looked at.

        Args:
            providers: The names and addresses.
            now: The time.
            seconds: The time between two looks.
        """
        columns = self._batches.c

        def work(connection: sa.Connection) -> Sequence[Batch]:
            found = []
            query = sa.select(self._batches).where(columns.looked_at <= now - seconds)
            for row in connection.execute(query.order_by(columns.created_at)).all():
                if (row.provider, row.address) not in providers:
                    continue
                looked = self._batches.update().where(
                    columns.id == row.id, columns.looked_at == row.looked_at
                )
                if connection.execute(looked.values(looked_at=now)).rowcount:
                    found.append(
                        Batch(
                            row.id,
                            row.process,
                            row.provider,
                            row.address,
                            row.remote or "",
                            row.deadline,
                            row.created_at,
                            row.misses,
                            row.cancelled,
                        )
                    )
            return found

        return self._database.write_repeatable(work)

    def missed(self, batch_id: str) -> None:
        """Counts that a batch was looked for at the provider in vain."""
        columns = self._batches.c
        change = self._batches.update().where(columns.id == batch_id).values(misses=columns.misses + 1)
        self._database.write_repeatable(lambda connection: connection.execute(change))

    def cancelled(self, batch_id: str) -> None:
        """Records that the cancellation of a batch was requested."""
        change = self._batches.update().where(self._batches.c.id == batch_id).values(cancelled=True)
        self._database.write_repeatable(lambda connection: connection.execute(change))

    def readings(self, batch_id: str) -> Mapping[str, Any]:
        """How the responses to the requests of a batch are read, by fingerprint."""
        columns = self._requests.c
        query = sa.select(columns.fingerprint, columns.reading).where(columns.batch == batch_id)
        return self._database.read(
            lambda connection: {
                row.fingerprint: json.loads(row.reading or "{}") for row in connection.execute(query)
            }
        )

    def answer(self, batch_id: str, answers: Mapping[str, str]) -> None:
        """Records answers to requests of a batch."""
        columns = self._requests.c
        # One whose call was made live meanwhile keeps its state.
        change = self._requests.update().where(
            columns.fingerprint == sa.bindparam("one"),
            columns.batch == batch_id,
            columns.state == RequestState.SENT,
        )
        change = change.values(state=RequestState.ANSWERED, answer=sa.bindparam("what"))
        rows = [{"one": one, "what": what} for one, what in sorted(answers.items())]
        if rows:
            self._database.write_repeatable(lambda connection: connection.execute(change, rows))

    def end(self, batch_id: str, state: RequestState, among: Collection[str] | None = None) -> None:
        """Ends a batch, or takes requests out of it. Its unanswered requests get a state.

        Args:
            batch_id: The batch.
            state: ``LIVE`` or ``WAITING``.
            among: The requests that are taken out. None: all, and the batch ends.
        """
        columns = self._requests.c
        mine = self._requests.update().where(columns.batch == batch_id, columns.state == RequestState.SENT)

        def work(connection: sa.Connection) -> None:
            if among is None:
                connection.execute(mine.values(state=state, batch=None))
                connection.execute(self._batches.delete().where(self._batches.c.id == batch_id))
                return
            one = mine.where(columns.fingerprint == sa.bindparam("one")).values(state=state, batch=None)
            connection.execute(one, [{"one": fingerprint} for fingerprint in sorted(among)])

        self._database.write_repeatable(work)

    def purge(self, before: float, unread_before: float) -> None:
        """Deletes requests without use.

        Args:
            before: The deadline passed before this time.
            unread_before: The same of answers whose cost no caller was told.
        """
        columns = self._requests.c
        without_use = columns.state.in_((RequestState.WAITING, RequestState.LIVE, RequestState.TOLD))
        old = self._requests.delete().where(
            sa.or_(
                sa.and_(without_use, columns.deadline < before),
                sa.and_(columns.state == RequestState.ANSWERED, columns.deadline < unread_before),
            )
        )
        self._database.write_repeatable(lambda connection: connection.execute(old))

    def _ready(self, now: float, gather_seconds: float) -> Sequence[sa.ColumnElement[bool]]:
        columns = self._requests.c
        # Asked for again: its caller still waits.
        return (
            columns.state == RequestState.WAITING,
            columns.created_at <= now - gather_seconds,
            columns.asked_at > columns.created_at,
            columns.deadline > now,
        )

    def _of(self, group: Group) -> Sequence[sa.ColumnElement[bool]]:
        columns = self._requests.c
        return [columns[name] == value for name, value in group._asdict().items()]
