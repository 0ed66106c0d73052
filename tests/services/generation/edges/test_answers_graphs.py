"""What is read of answers with graphs in every notation: complete, and nothing invented."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.api.graph.v1.script_graph_pb2 import Event
from services.generation.edges.answers import read_edges_between, read_written_graph
from tests.answers.graph_answers import EDGES, WHOLE, GraphAnswer, graph_answers

Edges = frozenset[tuple[str, str]]


def written(answer: GraphAnswer) -> tuple[list[str], Edges]:
    read = read_written_graph(answer.text)
    if read is None:
        return [], frozenset()
    events, edges, _ = read
    texts = {event.id: event.text for event in events}
    return [*texts.values()], frozenset((texts[edge.source_id], texts[edge.target_id]) for edge in edges)


def ordered(answer: GraphAnswer) -> Edges:
    events = {number: Event(id=f"id{number}", text=text) for number, text in enumerate(answer.events, 1)}
    read = read_edges_between(answer.text, events)
    if read is None:
        return frozenset()
    texts = {event.id: event.text for event in events.values()}
    return frozenset((texts[edge.source_id], texts[edge.target_id]) for edge in read.edges)


def assert_complete(complete: Iterable[bool], least: float = 0.95) -> None:
    found = [*complete]
    assert sum(found) / len(found) >= least


def test_graphs_in_any_notation_are_read_whole_and_nothing_is_invented() -> None:
    whole, edges_alone = graph_answers(WHOLE), graph_answers(EDGES)
    assert len(whole) + len(edges_alone) >= 200
    read = [written(answer) for answer in whole]
    for answer, (events, edges) in zip(whole, read, strict=True):
        assert {*events} <= {*answer.events}, answer
        assert edges <= answer.edges, answer
    found = [ordered(answer) for answer in edges_alone]
    for answer, edges in zip(edges_alone, found, strict=True):
        assert edges <= answer.edges, answer
    assert_complete(
        [
            *(
                sorted(events) == sorted(answer.events) and edges == answer.edges
                for answer, (events, edges) in zip(whole, read, strict=True)
            ),
            *(edges == answer.edges for answer, edges in zip(edges_alone, found, strict=True)),
        ]
    )


def test_texts_of_events_go_before_numbers_of_an_answer() -> None:
    events = {1: Event(id="a", text="bake it"), 2: Event(id="b", text="mix")}
    read = read_edges_between("step1: mix; step2: bake it; step1 -> step2; step2 -> step7", events)
    assert read is not None
    assert [(edge.source_id, edge.target_id) for edge in read.edges] == [("b", "a")]
    assert read.dropped == ["edge from '2' to '7': it names no two events"]


def test_an_answer_without_edges_is_no_graph() -> None:
    assert read_written_graph("1. find\n2. mix") is None
    assert read_edges_between("Nothing has an order.", {}) is None
    assert read_edges_between("7 -> 8", {1: Event(id="a", text="bake it")}) is None


def test_parts_that_are_left_out_are_listed() -> None:
    read = read_written_graph("step0: find; step1: mix; step0 -> step1; step1 -> step5;\nNo step1 -> step0.")
    assert read is not None
    events, edges, dropped = read
    assert ([event.text for event in events], len(edges)) == (["find", "mix"], 1)
    assert any("'5'" in one for one in dropped)
    assert any("step1 -> step0" in one for one in dropped)
