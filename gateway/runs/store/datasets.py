"""Uploaded datasets in the tables. Each function is part of a transaction.

Times are those of the store, so that gateways whose clocks differ agree on expired uploads.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import DatasetFormat
from gateway.runs.records import DatasetRecord, NewDataset
from gateway.runs.store.base import DatasetOffsetError, DatasetQuotaError
from gateway.runs.store.codec import pack, unpack
from gateway.runs.store.tables import dataset_chunks, datasets

_CHUNKS_PER_DELETE = 50
_TENANT_LOCK = 0x64617461


def create(
    connection: sa.Connection, clock: int, new: NewDataset, quota_bytes: int | None
) -> tuple[DatasetRecord, bool]:
    """See ``RunStore.create_dataset``; ``clock`` is the time of the store in microseconds."""
    found = find(connection, new.id, new.tenant)
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
    now = _time(clock)
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
    created = find(connection, new.id, new.tenant)
    assert created is not None
    return created, True


def find(connection: sa.Connection, dataset_id: str, tenant: str) -> DatasetRecord | None:
    """See ``RunStore.get_dataset``."""
    row = connection.execute(sa.select(datasets).where(_is(dataset_id, tenant))).one_or_none()
    return None if row is None else _record(row)


def list_datasets(
    connection: sa.Connection, tenant: str, limit: int, before: int | None
) -> Sequence[DatasetRecord]:
    """See ``RunStore.list_datasets``."""
    query = sa.select(datasets).where(_of_tenant(tenant)).order_by(datasets.c.number.desc()).limit(limit)
    if before is not None:
        query = query.where(datasets.c.number < before)
    return [_record(row) for row in connection.execute(query)]


def append(
    connection: sa.Connection, clock: int, dataset_id: str, tenant: str, position: int, content: bytes
) -> DatasetRecord | None:
    """See ``RunStore.append_dataset``."""
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
    connection.execute(own.values(received=end, update_time=_time(clock)))
    return find(connection, dataset_id, tenant)


def set_ready(connection: sa.Connection, clock: int, dataset_id: str, tenant: str) -> DatasetRecord | None:
    """See ``RunStore.set_dataset_ready``."""
    connection.execute(
        datasets.update().where(_is(dataset_id, tenant)).values(ready=True, update_time=_time(clock))
    )
    return find(connection, dataset_id, tenant)


def chunk(connection: sa.Connection, number: int, position: int) -> bytes | None:
    """See ``RunStore.dataset_content``: the chunk at a position."""
    query = sa.select(dataset_chunks.c.content).where(
        dataset_chunks.c.dataset == number, dataset_chunks.c.position == position
    )
    packed = connection.execute(query).scalar_one_or_none()
    return None if packed is None else unpack(packed)


def hide(connection: sa.Connection, dataset_id: str, tenant: str) -> None:
    """Marks a dataset as deleted: no method finds it, and its content may be uploaded again."""
    connection.execute(datasets.update().where(_is(dataset_id, tenant)).values(id=None))


def purge(connection: sa.Connection, clock: int, expiry_seconds: float | None) -> bool:
    """Deletes a bounded part of a dataset that is marked as deleted, or of an expired upload.

    Args:
        connection: The connection.
        clock: The time of the store in microseconds.
        expiry_seconds: The time without progress after which an upload expires. None: uploads are kept.

    Returns:
        Whether anything may be left.
    """
    wanted: sa.ColumnElement[bool] = datasets.c.id.is_(None)
    if expiry_seconds is not None:
        expired = datasets.c.update_time < _time(clock) - timedelta(seconds=expiry_seconds)
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


def _lock(connection: sa.Connection, dataset_id: str, tenant: str) -> sa.Row[*tuple[Any, ...]] | None:
    query = sa.select(datasets).where(_is(dataset_id, tenant))
    return connection.execute(query.with_for_update()).one_or_none()


def _is(dataset_id: str, tenant: str) -> sa.ColumnElement[bool]:
    return (datasets.c.id == dataset_id) & (datasets.c.tenant == tenant)


def _of_tenant(tenant: str) -> sa.ColumnElement[bool]:
    return (datasets.c.tenant == tenant) & datasets.c.id.is_not(None)


def _time(clock: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock)


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
