"""Reading what models write: what is understood, what is listed, and that it always ends soon."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.graphs.dot import to_dot
from services.graph.codec.graphs import encode_graph
from services.graph.model import ScriptGraph, TooLargeError, minutes_of, text_of
from services.graph.parser.builder import MAX_REPAIRS, RepairKind
from services.graph.parser.formats import Dialect, Parsed, parse
from tests.support.graphs import graphs


def events(parsed: Parsed) -> dict[str, str]:
    assert parsed.graph is not None
    return {event: text_of(parsed.graph, event) for event in parsed.graph}


def edges(parsed: Parsed) -> list[tuple[str, str]]:
    assert parsed.graph is not None
    return list(parsed.graph.edges)


def repairs(parsed: Parsed) -> list[tuple[RepairKind, str]]:
    return [(repair.kind, repair.text) for repair in parsed.repairs]


def test_steps_as_the_paper_has_them() -> None:
    parsed = parse("step0: find the recipe; step1: mix; step0 -> step1")
    assert parsed.dialect is Dialect.STEPS
    assert events(parsed) == {"0": "find the recipe", "1": "mix"}
    assert edges(parsed) == [("0", "1")]
    assert parsed.repairs == []


@pytest.mark.parametrize(
    "written",
    [
        "step0 -> step1; step1 -> step2",
        "Step0 --> Step1;\nStep1 --> Step2;",
        "step0 → step1 → step2",
        "0 -> 1; 1 -> 2",
        "- step 0 => step 1\n- step 1 => step 2",
        "step0->step1,step1->step2",
    ],
)
def test_ways_to_write_edges_without_loss(written: str) -> None:
    parsed = parse(written)
    assert edges(parsed) == [("0", "1"), ("1", "2")]
    assert parsed.repairs == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step0: a step1: b", [(RepairKind.SEPARATOR_ASSUMED, "step1:")]),
        ("step0 -> step1 step1 -> step2", [(RepairKind.SEPARATOR_ASSUMED, "step1 ->")]),
        ("step0 -> step1; step0 -> step1", [(RepairKind.EDGE_REPEATED, "0 -> 1")]),
        ("step0 ->; step1 -> step2", [(RepairKind.EDGE_INCOMPLETE, "step0 ->")]),
        ("step0: a; step0: a", [(RepairKind.EVENT_REPEATED, "a")]),
        ("step0: a; step0: b", [(RepairKind.EVENT_REDEFINED, "b")]),
        ("step0: a; step0 -> step1", [(RepairKind.EVENT_UNDECLARED, "1")]),
        ("step0: bake for\n  an hour; step1: eat", [(RepairKind.LINES_JOINED, "bake for\n  an hour")]),
        ("step0: a\x00b; step1: c", [(RepairKind.CHARACTER_REMOVED, "a\x00b")]),
        (
            "```dot\nstep0: a;\n```",
            [(RepairKind.FENCE_REMOVED, "```dot"), (RepairKind.FENCE_REMOVED, "```")],
        ),
        (
            "Sure!\nstep0: a;\nEnjoy.",
            [(RepairKind.TEXT_DROPPED, "Sure!"), (RepairKind.TEXT_DROPPED, "Enjoy.")],
        ),
    ],
)
def test_every_repair_is_listed(text: str, expected: list[tuple[RepairKind, str]]) -> None:
    assert repairs(parse(text)) == expected


def test_repairs_point_into_the_text_as_given() -> None:
    text = "Here: step0: a; step0: b; step7 -> step0 and so on"
    for repair in parse(text).repairs:
        at = text.index(repair.text if repair.kind is not RepairKind.EVENT_UNDECLARED else "step7")
        assert at - repair.position in {0, len("step0: ")}


def test_labels_may_hold_numbers_colons_and_hyphens() -> None:
    parsed = parse("step0: take 2.5 cups: sift - twice; step1: at 10:30, stop.")
    assert events(parsed) == {"0": "take 2.5 cups: sift - twice", "1": "at 10:30, stop."}
    assert parsed.repairs == []


def test_dot_with_what_models_put_into_it() -> None:
    parsed = parse(
        """Here you are:
        strict digraph "G" {
            label="bake a cake"; node [shape=box]; // a comment
            a [label="find \\"the\\" recipe", minutes=2.5, color=red];
            b [label=<mix <b>well</b>>];
            a -> b -> {c; d} [weight=0.5];
            /* another */ a:port:n -> d
            subgraph cluster_0 { e; f } -> g;
        } That is all."""
    )
    assert parsed.dialect is Dialect.DOT
    assert parsed.graph is not None
    assert parsed.graph.graph["scenario"] == "bake a cake"
    assert events(parsed) == {
        "a": 'find "the" recipe',
        "b": "mix well",
        **{event: event for event in "cdefg"},
    }
    assert minutes_of(parsed.graph, "a") == 2.5
    assert edges(parsed) == [
        ("a", "b"), ("a", "d"), ("b", "c"), ("b", "d"), ("e", "g"), ("f", "g"),
    ]  # fmt: skip
    assert repairs(parsed) == [
        (RepairKind.TEXT_DROPPED, "Here you are:"),
        (RepairKind.TEXT_DROPPED, "That is all."),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("graph { a -- b }", (RepairKind.UNDIRECTED_EDGE_DROPPED, "a -- b")),
        ("digraph { a -> b", (RepairKind.CLOSED, "}")),
        ("digraph { a -> }", (RepairKind.EDGE_INCOMPLETE, "a ->")),
        ("digraph { a; @ }", (RepairKind.TEXT_DROPPED, "@")),
        ("digraph { a [minutes=soon] }", (RepairKind.TEXT_DROPPED, "minutes=soon")),
    ],
)
def test_broken_dot_is_repaired_and_listed(text: str, expected: tuple[RepairKind, str]) -> None:
    parsed = parse(text)
    assert parsed.graph is not None
    assert "a" in parsed.graph
    assert repairs(parsed) == [expected]


def test_steps_in_the_braces_of_a_graph_are_steps() -> None:
    parsed = parse("digraph {\nstep0: find the recipe;\nstep1: mix;\nstep0 -> step1;\n}")
    assert parsed.dialect is Dialect.STEPS
    assert events(parsed) == {"0": "find the recipe", "1": "mix"}


def test_json_of_the_release() -> None:
    parsed = parse(
        'Result: {"scenario": "ride", "context": "NONE", "events": {"0": "pay", "1": "NONE", "2": "ride"},'
        ' "events_minutes": {"0": 3}, "gold_edges_for_prediction": ["1->0", "0->2", "0=2"]}'
    )
    assert parsed.dialect is Dialect.JSON
    assert events(parsed) == {"0": "pay", "1": "decided to ride", "2": "ride"}
    assert edges(parsed) == [("0", "2"), ("1", "0")]
    assert {repair.kind for repair in parsed.repairs} == {RepairKind.TEXT_DROPPED, RepairKind.ROOT_NAMED}
    assert any("0=2" in repair.text for repair in parsed.repairs)


def test_a_list_of_edges_is_json_and_other_lists_are_not() -> None:
    assert edges(parse('["0->1", ["1", "2"]]')) == [("0", "1"), ("1", "2")]
    assert parse('["find it", "mix it"]').graph is None


@given(graphs())
def test_dot_that_is_written_is_read_again(graph: ScriptGraph) -> None:
    message = encode_graph(graph)
    if not message.events:
        return
    parsed = parse(to_dot(message), Dialect.DOT)
    assert parsed.graph is not None
    assert encode_graph(parsed.graph).events == message.events
    assert set(edges(parsed)) == {(edge.source_id, edge.target_id) for edge in message.edges}
    assert parsed.repairs == []


@given(
    st.text(alphabet="step01 ->:;\n{}[]\"<digraph,=a'`\\/*#\x00", max_size=200),
    st.sampled_from([None, *Dialect]),
)
def test_any_text_is_read_and_positions_lie_in_it(text: str, dialect: Dialect | None) -> None:
    parsed = parse(text, dialect)
    assert all(0 <= repair.position <= len(text) for repair in parsed.repairs)
    assert parsed.graph is None or len(parsed.graph) > 0


MILLION = 1_000_000
HOSTILE = {
    "digits": "1" * MILLION,
    "edges everywhere": "; ".join(
        f"step{i} -> step{(7 * i + k) % 4000}" for i in range(4000) for k in range(15)
    ),
    "one edge again and again": "step0->step1;" * (MILLION // 13),
    "five thousand and one events": "".join(f"step{i}: e;" for i in range(5001)),
    "a label of a megabyte": "step0: " + "x" * (MILLION - 10),
    "NUL bytes": "\0" * MILLION,
    "NUL bytes in a label": "step0: " + "\0" * (MILLION - 10),
    "deep subgraphs": "digraph {" + "{" * (MILLION - 10),
    "deep lists": "[" * MILLION,
    "open comments": "digraph {" + "/*" * (MILLION // 2 - 10),
    "quotation marks": "digraph {" + '\\"' * (MILLION // 2 - 10),
    "open brackets": "digraph {a " + "[" * (MILLION - 20),
    "angles": "digraph {" + "<" * (MILLION - 10),
    "no tokens": "digraph {" + "@" * (MILLION - 10),
    "a product of subgraphs": "digraph {{" + " ".join(f"a{i}" for i in range(2400)) + "} -> {b c d}}" * 20,
    "heads of graphs": "digraph " * (MILLION // 8),
    "fences": "`" * MILLION,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_answered_or_refused_in_bounded_time(name: str) -> None:
    start = time.process_time()
    refusal: TooLargeError | None = None
    try:
        assert len(parse(HOSTILE[name]).repairs) <= MAX_REPAIRS
    except TooLargeError as error:
        refusal = error
    assert refusal is None or refusal.actual > refusal.limit
    assert time.process_time() - start < 6
