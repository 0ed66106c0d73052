"""Uploaded datasets in the tables.

Times are those of the store, so that gateways whose clocks differ agree on expired uploads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import DatasetFormat
from dramaturg.database.database import Repository, inserting, reading, writing
from gateway.runs.records import DatasetRecord, NewDataset
from gateway.runs.store.codec import pack, unpack
from gateway.runs.store.errors import DatasetOffsetError, DatasetQuotaError
from gateway.runs.store.tables import dataset_chunks, datasets, time_of

_CHUNKS_PER_DELETE = 50
_TENANT_LOCK = 0x64617461


class Datasets(Repository):
    """The uploaded datasets."""

    @inserting
    def create(
        self, connection: sa.Connection, new: NewDataset, quota_bytes: int | None = None
    ) -> tuple[DatasetRecord, bool]:
        """Creates a dataset without content. Returns it, or the existing one, and whether it is new.

        Args:
            connection: That of the transaction.
            new: The dataset.
            quota_bytes: The most bytes of the tenant's datasets together. None: any number.

        Raises:
            DatasetQuotaError: The datasets would have more bytes.
        """
        clock = self._database.now(connection)
        found = _find(connection, new.id, new.tenant)
        if found is not None:
            return found, False
        if quota_bytes is not None:
            if connection.dialect.name == "postgresql":
                # Uploads of one tenant begin one at a time, so that each sees the sizes of those before it.
                key = sa.func.hashtext(new.tenant)
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_TENANT_LOCK, key)))
            query = sa.select(sa.func.coalesce(sa.func.sum(datasets.c.byte_count), 0))
            kept = connection.execute(query.where(_of_tenant(new.tenant))).scalar_one()
            if kept + new.byte_count > quota_bytes:
                raise DatasetQuotaError
        now = time_of(clock)
        connection.execute(
            datasets.insert().values(
                tenant=new.tenant,
                id=new.id,
                display_name=new.display_name,
                format=new.format,
                byte_count=new.byte_count,
                create_time=now,
                update_time=now,
            )
        )
        created = _find(connection, new.id, new.tenant)
        assert created is not None
        return created, True

    @reading
    def get(self, connection: sa.Connection, dataset_id: str, tenant: str) -> DatasetRecord | None:
        """The dataset; None if the tenant has none of this id."""
        return _find(connection, dataset_id, tenant)

    @reading
    def page(
        self, connection: sa.Connection, tenant: str, *, limit: int, before: int | None = None
    ) -> Sequence[DatasetRecord]:
        """Datasets, the newest first, with numbers below ``before``."""
        query = sa.select(datasets).where(_of_tenant(tenant)).order_by(datasets.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(datasets.c.number < before)
        return [_record(row) for row in connection.execute(query)]

    @writing
    def append(
        self, connection: sa.Connection, dataset_id: str, tenant: str, position: int, content: bytes
    ) -> DatasetRecord | None:
        """Appends bytes. Returns the dataset; None if it does not exist.

        Raises:
            DatasetOffsetError: The position is not the number of bytes received.
        """
        clock = self._database.now(connection)
        row = _lock(connection, dataset_id, tenant)
        if row is None:
            return None
        end = position + len(content)
        if row.received != position:
            raise DatasetOffsetError(row.received)
        connection.execute(
            dataset_chunks.insert().values(dataset=row.number, position=position, content=pack(content))
        )
        own = datasets.update().where(datasets.c.number == row.number)
        connection.execute(own.values(received=end, update_time=time_of(clock)))
        return _find(connection, dataset_id, tenant)

    @writing
    def set_ready(self, connection: sa.Connection, dataset_id: str, tenant: str) -> DatasetRecord | None:
        """Records that the content has the SHA-256. Returns the dataset; None if it does not exist."""
        clock = self._database.now(connection)
        connection.execute(
            datasets.update().where(_is(dataset_id, tenant)).values(ready=True, update_time=time_of(clock))
        )
        return _find(connection, dataset_id, tenant)

    def content(self, dataset: DatasetRecord) -> Iterator[bytes]:
        """The received content in pieces, each read in a transaction of its own.

        Raises:
            KeyError: From the iteration: the dataset was deleted.
        """
        position = 0
        while position < dataset.received:
            piece = self._chunk(dataset.number, position)
            if not piece:
                raise KeyError(dataset.id)
            yield piece
            position += len(piece)

    @reading
    def _chunk(self, connection: sa.Connection, number: int, position: int) -> bytes | None:
        query = sa.select(dataset_chunks.c.content).where(
            dataset_chunks.c.dataset == number, dataset_chunks.c.position == position
        )
        packed = connection.execute(query).scalar_one_or_none()
        return None if packed is None else unpack(packed)

    def delete(self, dataset_id: str, tenant: str) -> None:
        """Deletes a dataset: hides it in one transaction, then deletes its content in bounded ones."""
        self.hide(dataset_id, tenant)
        while self.purge():
            pass

    @writing
    def hide(self, connection: sa.Connection, dataset_id: str, tenant: str) -> None:
        """Marks a dataset as deleted: no method finds it, and its content may be uploaded again."""
        connection.execute(datasets.update().where(_is(dataset_id, tenant)).values(id=None))

    @writing
    def purge(self, connection: sa.Connection, expiry_seconds: float | None = None) -> bool:
        """Deletes a bounded part of deleted datasets and expired uploads. Returns whether any may be left.

        Args:
            connection: That of the transaction.
            expiry_seconds: The time without progress after which an upload expires. None: uploads are kept.
        """
        clock = self._database.now(connection)
        wanted: sa.ColumnElement[bool] = datasets.c.id.is_(None)
        if expiry_seconds is not None:
            expired = datasets.c.update_time < time_of(clock) - timedelta(seconds=expiry_seconds)
            wanted |= datasets.c.ready.is_(False) & expired
        query = sa.select(datasets.c.number).where(wanted).order_by(datasets.c.number).limit(1)
        number = connection.execute(query.with_for_update(skip_locked=True)).scalar_one_or_none()
        if number is None:
            return False
        mine = dataset_chunks.c.dataset == number
        found = sa.select(dataset_chunks.c.position).where(mine).limit(_CHUNKS_PER_DELETE)
        positions = connection.execute(found).scalars().all()
        if positions:
            connection.execute(datasets.update().where(datasets.c.number == number).values(id=None))
            connection.execute(dataset_chunks.delete().where(mine, dataset_chunks.c.position.in_(positions)))
        else:
            connection.execute(datasets.delete().where(datasets.c.number == number))
        return True


def _find(connection: sa.Connection, dataset_id: str, tenant: str) -> DatasetRecord | None:
    row = connection.execute(sa.select(datasets).where(_is(dataset_id, tenant))).one_or_none()
    return None if row is None else _record(row)


def _lock(connection: sa.Connection, dataset_id: str, tenant: str) -> sa.Row[*tuple[Any, ...]] | None:
    query = sa.select(datasets).where(_is(dataset_id, tenant))
    return connection.execute(query.with_for_update()).one_or_none()


def _is(dataset_id: str, tenant: str) -> sa.ColumnElement[bool]:
    return (datasets.c.id == dataset_id) & (datasets.c.tenant == tenant)


def _of_tenant(tenant: str) -> sa.ColumnElement[bool]:
    return (datasets.c.tenant == tenant) & datasets.c.id.is_not(None)


def _record(row: sa.Row[*tuple[Any, ...]]) -> DatasetRecord:
    return DatasetRecord(
        number=row.number,
        id=row.id,
        tenant=row.tenant,
        display_name=row.display_name,
        format=DatasetFormat.ValueType(row.format),
        byte_count=row.byte_count,
        received=row.received,
        is_ready=row.ready,
        create_time=row.create_time,
        update_time=row.update_time,
    )
