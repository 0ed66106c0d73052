from __future__ import annotations

import hashlib
from typing import Any

import pytest
import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import DATASET_FORMAT_CSV
from gateway.runs.records import DatasetRecord, NewDataset
from gateway.runs.store import DatasetOffsetError, DatasetQuotaError, RunStore
from gateway.runs.store.sql_store import SqlRunStore
from gateway.runs.store.tables import dataset_chunks, datasets

CONTENT = bytes(range(256)) * 40


def new(content: bytes = CONTENT, tenant: str = "a", **fields: Any) -> NewDataset:
    return NewDataset(
        **{
            "id": hashlib.sha256(content).hexdigest(),
            "tenant": tenant,
            "byte_count": len(content),
            "display_name": "rows.csv",
            "format": DATASET_FORMAT_CSV,
            **fields,
        }
    )


def upload(store: RunStore, content: bytes = CONTENT, tenant: str = "a") -> DatasetRecord:
    created, _ = store.create_dataset(new(content, tenant))
    store.append_dataset(created.id, tenant, 0, content)
    ready = store.set_dataset_ready(created.id, tenant)
    assert ready is not None
    return ready


def row_counts(store: RunStore) -> tuple[int, int]:
    assert isinstance(store, SqlRunStore)
    counts = [sa.select(sa.func.count()).select_from(table) for table in (datasets, dataset_chunks)]
    found = store._database.read(lambda connection: [connection.execute(one).scalar_one() for one in counts])
    return found[0], found[1]


def test_content_is_kept_as_it_was_appended(store: RunStore) -> None:
    created, is_new = store.create_dataset(new())
    assert (is_new, created.received, created.is_ready) == (True, 0, False)
    assert store.append_dataset(created.id, "a", 0, CONTENT[:4000]) is not None
    appended = store.append_dataset(created.id, "a", 4000, CONTENT[4000:])
    assert appended is not None
    assert appended.received == len(CONTENT)
    assert b"".join(store.dataset_content(appended)) == CONTENT
    ready = store.set_dataset_ready(created.id, "a")
    assert ready is not None
    assert ready.is_ready
    assert store.create_dataset(new()) == (ready, False)
    assert store.get_dataset(created.id, "a") == ready


def test_bytes_follow_those_received(store: RunStore) -> None:
    created, _ = store.create_dataset(new())
    store.append_dataset(created.id, "a", 0, CONTENT[:100])
    for position in (0, 99, 101):
        with pytest.raises(DatasetOffsetError) as raised:
            store.append_dataset(created.id, "a", position, b"x")
        assert raised.value.received == 100
    assert store.append_dataset("0" * 64, "a", 0, b"x") is None


def test_a_dataset_is_another_tenants_secret(store: RunStore) -> None:
    made = upload(store)
    assert store.get_dataset(made.id, "b") is None
    assert store.append_dataset(made.id, "b", made.received, b"x") is None
    assert not store.list_datasets("b", limit=9)
    # The same content of another tenant is another dataset.
    created, is_new = store.create_dataset(new(tenant="b"))
    assert (is_new, created.received) == (True, 0)
    store.delete_dataset(made.id, "b")
    assert store.get_dataset(made.id, "a") == made


def test_datasets_are_listed_from_the_newest(store: RunStore) -> None:
    made = [upload(store, bytes([index])) for index in range(5)]
    first = store.list_datasets("a", limit=2)
    assert list(first) == [made[4], made[3]]
    assert list(store.list_datasets("a", limit=9, before=first[-1].number)) == [made[2], made[1], made[0]]


def test_the_sizes_of_a_tenants_datasets_stay_within_its_quota(store: RunStore) -> None:
    store.create_dataset(new(b"1234"), 10)
    store.create_dataset(new(b"123456"), 10)
    with pytest.raises(DatasetQuotaError):
        store.create_dataset(new(b"7"), 10)
    assert store.create_dataset(new(b"1234"), 10)[1] is False, "what exists needs no further room"
    assert store.create_dataset(new(b"7", "b"), 10)[1]
    store.delete_dataset(new(b"1234").id, "a")
    assert store.create_dataset(new(b"7"), 10)[1]


def test_a_deleted_dataset_leaves_nothing_and_can_be_uploaded_again(store: RunStore) -> None:
    made = upload(store)
    for position in range(120):
        store.create_dataset(new(b"x" * 120, "b"))
        store.append_dataset(new(b"x" * 120).id, "b", position, b"x")
    store.delete_dataset(made.id, "a")
    store.delete_dataset(new(b"x" * 120).id, "b")
    assert store.get_dataset(made.id, "a") is None
    assert row_counts(store) == (0, 0)
    with pytest.raises(KeyError):
        list(store.dataset_content(made))
    assert upload(store).received == len(CONTENT)


def test_an_upload_without_progress_expires_and_a_complete_dataset_stays(store: RunStore) -> None:
    ready = upload(store)
    begun, _ = store.create_dataset(new(b"12"))
    store.append_dataset(begun.id, "a", 0, b"1")
    empty, _ = store.create_dataset(new(b"34"))
    while store.purge_datasets(3600):
        pass
    assert len(store.list_datasets("a", limit=9)) == 3
    while store.purge_datasets(0):
        pass
    assert list(store.list_datasets("a", limit=9)) == [ready]
    assert store.get_dataset(empty.id, "a") is None
    assert row_counts(store) == (1, 1)
