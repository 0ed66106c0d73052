from __future__ import annotations

from typing import Any

import pytest

from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_VERDICT, LabelItem, LabelSet
from gateway.runs.records import NewLabelItem, NewLabelSet
from gateway.runs.store import RunStore, open_store
from tests.support.runs import create


def new(label_set_id: str = "set", tenant: str = "a", items: int = 3, **fields: Any) -> NewLabelSet:
    described = LabelSet(id=label_set_id, run_id="run", task=LABEL_TASK_VERDICT, item_count=items, seed=7)
    drawn = [
        NewLabelItem(
            LabelItem(position=place, item=f"t{place}/c", criterion="fluent", choices=["PASS", "FAIL"]),
            f"t{place}",
            "writer\0",
            "",
            1.0 if place else None,
            0.25 if place else None,
        )
        for place in range(items)
    ]
    return NewLabelSet(described, tenant, drawn, **fields)


def test_items_are_kept_in_their_order(store: RunStore) -> None:
    made = store.label_sets.create(new(), most=5)
    assert made is not None
    assert made.description.create_time.seconds
    assert made.description.seed == 7
    items = store.label_sets.items(made.number, after=-1, limit=2)
    assert [(one.item.item, one.model, one.judged, one.probability) for one in items] == [
        ("t0/c", "writer\N{REPLACEMENT CHARACTER}", None, None),
        ("t1/c", "writer\N{REPLACEMENT CHARACTER}", 1.0, 0.25),
    ]
    assert [one.item.position for one in store.label_sets.items(made.number, after=1, limit=9)] == [2]


def test_a_label_replaces_the_earlier_one_of_its_annotator(store: RunStore) -> None:
    made = store.label_sets.create(new(), most=5)
    assert made is not None
    assert store.label_sets.write_label(made.number, 0, "ann", "PASS", "", 5)
    assert store.label_sets.write_label(made.number, 0, "bob", "PASS", "sure", 5)
    assert store.label_sets.write_label(made.number, 0, "ann", "FAIL", "on reflection", 5)
    assert [
        (one.position, one.annotator, one.label, one.note) for one in store.label_sets.labels(made.number)
    ] == [
        (0, "ann", "FAIL", "on reflection"),
        (0, "bob", "PASS", "sure"),
    ]
    mine = store.label_sets.items(made.number, after=-1, limit=9, annotator="bob")
    assert [one.item.label for one in mine] == ["PASS", "", ""]
    left = store.label_sets.items(made.number, after=-1, limit=9, annotator="bob", unlabelled_only=True)
    assert [one.item.position for one in left] == [1, 2]
    assert store.label_sets.write_label(made.number, 0, "bob", "", "", 5)
    assert [one.annotator for one in store.label_sets.labels(made.number)] == ["ann"]


def test_a_set_has_a_maximum_of_annotators(store: RunStore) -> None:
    made = store.label_sets.create(new(), most=5)
    assert made is not None
    assert store.label_sets.write_label(made.number, 0, "ann", "PASS", "", 1)
    assert not store.label_sets.write_label(made.number, 0, "bob", "PASS", "", 1)
    assert store.label_sets.write_label(made.number, 1, "ann", "PASS", "", 1)


def test_sets_of_a_tenant_are_counted_and_hidden_from_others(store: RunStore) -> None:
    assert store.label_sets.create(new("one"), most=2) is not None
    assert store.label_sets.create(new("two"), most=2) is not None
    assert store.label_sets.create(new("three"), most=2) is None
    assert store.label_sets.create(new("other", tenant="b"), most=2) is not None
    assert [one.description.id for one in store.label_sets.page("a", limit=9)] == ["two", "one"]
    newest = store.label_sets.page("a", limit=1)[0]
    assert [one.description.id for one in store.label_sets.page("a", limit=9, before=newest.number)] == [
        "one"
    ]
    assert store.label_sets.get("one", "b") is None


def test_a_request_id_creates_one_set(store: RunStore) -> None:
    first = store.label_sets.create(new("one", request_id="r"), most=1)
    again = store.label_sets.create(new("two", request_id="r"), most=1)
    assert first is not None
    assert again is not None
    assert again.description.id == "one"
    found = store.label_sets.requested("r", "a")
    assert found is not None
    assert found.number == first.number
    assert store.label_sets.requested("r", "b") is None


def test_a_deleted_set_leaves_nothing(store: RunStore) -> None:
    made = store.label_sets.create(new(), most=1)
    assert made is not None
    store.label_sets.write_label(made.number, 0, "ann", "PASS", "", 5)
    store.label_sets.delete(made.number)
    assert store.label_sets.get("set", "a") is None
    assert not store.label_sets.labels(made.number)
    assert store.label_sets.create(new(), most=1) is not None


def test_labels_survive_a_restart_and_the_deletion_of_the_run(store: RunStore, store_url: str) -> None:
    create(store)
    made = store.label_sets.create(new(), most=1)
    assert made is not None
    store.label_sets.write_label(made.number, 2, "ann", "FAIL", "", 5)
    store.runs.delete("run")
    store.close()
    reopened = open_store(store_url)
    assert [one.label for one in reopened.label_sets.labels(made.number)] == ["FAIL"]
    reopened.close()


def test_requests_of_samples_are_read_by_index(store: RunStore) -> None:
    create(store, samples=4)
    assert store.samples.requests("run", [3, 1, 9]) == {1: b"request 1", 3: b"request 3"}
    with pytest.raises(KeyError):
        store.samples.requests("run", [])[0]
