from __future__ import annotations

from typing import Any

import pytest

from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge
from dramaturg.graphs.files import RecordError, read_record


@pytest.mark.parametrize(
    "edges",
    [
        ["step1->step2", "2 => 3"],
        ["1 --> 2", "2→3"],
        [["1", "2"], [2, 3]],
        [{"source_id": "1", "target_id": "2"}, {"source_id": 2, "target_id": 3}],
    ],
)
def test_edges_are_read_in_every_form(edges: list[Any]) -> None:
    graph = read_record({"edges": edges})
    assert graph.edges == [("1", "2"), ("2", "3")]
    assert graph.unread == []


def test_events_are_a_map_or_a_list() -> None:
    assert read_record({"unordered_nodes": {"1": "mix", "2": "bake"}}).events == {"1": "mix", "2": "bake"}
    graph = read_record({"events": ["mix", {"id": "b", "text": "bake", "duration_minutes": 40}, 7]})
    assert graph.events == {"0": "mix", "b": "bake"}
    assert graph.minutes == {"b": 40.0}
    assert graph.unread == ["events[2]: 7"]


@pytest.mark.parametrize("minutes", [-1, True, "long", float("nan"), float("inf"), 2e9])
def test_an_invalid_duration_is_never_used(minutes: object) -> None:
    assert read_record({"events": {"1": "mix"}, "events_minutes": {"1": minutes}}).minutes == {}


def test_a_list_is_a_list_of_edges() -> None:
    assert read_record(["1->2"]).edges == [("1", "2")]


def test_the_root_of_proscript_gets_its_text() -> None:
    graph = read_record({"scenario": "bake a cake", "context": "NONE", "events": {"0": "NONE", "1": "mix"}})
    assert graph.named_root == "0"
    assert graph.events["0"] == "decided to bake a cake"


def test_unreadable_edges_are_kept_as_text() -> None:
    graph = read_record({"edges": ["1->2", "1-2", ["1"], 3]})
    assert graph.edges == [("1", "2")]
    assert graph.unread == ["edges[1]: '1-2'", "edges[2]: ['1']", "edges[3]: 3"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "neither events nor edges"),
        ({"events": "mix"}, "events must be a map or a list"),
        ({"edges": {}}, "edges must be a list"),
    ],
)
def test_a_record_that_is_not_a_graph_is_refused(record: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        read_record(record)


def test_a_message_has_each_edge_once() -> None:
    message = read_record(
        {"scenario": "s", "events": {"1": "a", "2": "b"}, "edges": ["1->2", "1->2"]}
    ).message("g")
    assert (message.id, message.scenario) == ("g", "s")
    assert list(message.events) == [Event(id="1", text="a"), Event(id="2", text="b")]
    assert list(message.edges) == [EventEdge(source_id="1", target_id="2")]
