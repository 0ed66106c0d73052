from __future__ import annotations

import hashlib
from typing import Any

import pytest
import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import DATASET_FORMAT_CSV
from gateway.runs.records import DatasetRecord, NewDataset
from gateway.runs.store import DatasetOffsetError, DatasetQuotaError, RunStore
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
    created, _ = store.datasets.create(new(content, tenant))
    store.datasets.append(created.id, tenant, 0, content)
    ready = store.datasets.set_ready(created.id, tenant)
    assert ready is not None
    return ready


def row_counts(store: RunStore) -> tuple[int, int]:
    counts = [sa.select(sa.func.count()).select_from(table) for table in (datasets, dataset_chunks)]
    found = store.database.read(lambda connection: [connection.execute(one).scalar_one() for one in counts])
    return found[0], found[1]


def test_content_is_kept_as_it_was_appended(store: RunStore) -> None:
    created, is_new = store.datasets.create(new())
    assert (is_new, created.received, created.is_ready) == (True, 0, False)
    assert store.datasets.append(created.id, "a", 0, CONTENT[:4000]) is not None
    appended = store.datasets.append(created.id, "a", 4000, CONTENT[4000:])
    assert appended is not None
    assert appended.received == len(CONTENT)
    assert b"".join(store.datasets.content(appended)) == CONTENT
    ready = store.datasets.set_ready(created.id, "a")
    assert ready is not None
    assert ready.is_ready
    assert store.datasets.create(new()) == (ready, False)
    assert store.datasets.get(created.id, "a") == ready


def test_bytes_follow_those_received(store: RunStore) -> None:
    created, _ = store.datasets.create(new())
    store.datasets.append(created.id, "a", 0, CONTENT[:100])
    for position in (0, 99, 101):
        with pytest.raises(DatasetOffsetError) as raised:
            store.datasets.append(created.id, "a", position, b"x")
        assert raised.value.received == 100
    assert store.datasets.append("0" * 64, "a", 0, b"x") is None


def test_a_dataset_is_another_tenants_secret(store: RunStore) -> None:
    made = upload(store)
    assert store.datasets.get(made.id, "b") is None
    assert store.datasets.append(made.id, "b", made.received, b"x") is None
    assert not store.datasets.page("b", limit=9)
    # The same content of another tenant is another dataset.
    created, is_new = store.datasets.create(new(tenant="b"))
    assert (is_new, created.received) == (True, 0)
    store.datasets.delete(made.id, "b")
    assert store.datasets.get(made.id, "a") == made


def test_datasets_are_listed_from_the_newest(store: RunStore) -> None:
    made = [upload(store, bytes([index])) for index in range(5)]
    first = store.datasets.page("a", limit=2)
    assert list(first) == [made[4], made[3]]
    assert list(store.datasets.page("a", limit=9, before=first[-1].number)) == [made[2], made[1], made[0]]


def test_the_sizes_of_a_tenants_datasets_stay_within_its_quota(store: RunStore) -> None:
    store.datasets.create(new(b"1234"), 10)
    store.datasets.create(new(b"123456"), 10)
    with pytest.raises(DatasetQuotaError):
        store.datasets.create(new(b"7"), 10)
    assert store.datasets.create(new(b"1234"), 10)[1] is False, "what exists needs no further room"
    assert store.datasets.create(new(b"7", "b"), 10)[1]
    store.datasets.delete(new(b"1234").id, "a")
    assert store.datasets.create(new(b"7"), 10)[1]


def test_a_deleted_dataset_leaves_nothing_and_can_be_uploaded_again(store: RunStore) -> None:
    made = upload(store)
    for position in range(120):
        store.datasets.create(new(b"x" * 120, "b"))
        store.datasets.append(new(b"x" * 120).id, "b", position, b"x")
    store.datasets.delete(made.id, "a")
    store.datasets.delete(new(b"x" * 120).id, "b")
    assert store.datasets.get(made.id, "a") is None
    assert row_counts(store) == (0, 0)
    with pytest.raises(KeyError):
        list(store.datasets.content(made))
    assert upload(store).received == len(CONTENT)


def test_an_upload_without_progress_expires_and_a_complete_dataset_stays(store: RunStore) -> None:
    ready = upload(store)
    begun, _ = store.datasets.create(new(b"12"))
    store.datasets.append(begun.id, "a", 0, b"1")
    empty, _ = store.datasets.create(new(b"34"))
    while store.datasets.purge(3600):
        pass
    assert len(store.datasets.page("a", limit=9)) == 3
    while store.datasets.purge(0):
        pass
    assert list(store.datasets.page("a", limit=9)) == [ready]
    assert store.datasets.get(empty.id, "a") is None
    assert row_counts(store) == (1, 1)
