"""Reading what models write: what is understood, what is listed, and that it always ends soon."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.graphs.files import to_dot
from dramaturg.graphs.parsing.builder import MAX_REPAIRS, RepairKind, TooLargeError
from dramaturg.graphs.parsing.formats import Dialect, Parsed, parse
from services.graph.codec.graphs import encode_graph, encode_read_graph
from services.graph.model import ScriptGraph
from tests.support.graphs import graphs
from tests.support.growth import faster_than_linear


def events(parsed: Parsed) -> dict[str, str]:
    assert parsed.graph is not None
    return {event: read.text for event, read in parsed.graph.events.items()}


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
    assert parsed.graph.scenario == "bake a cake"
    assert events(parsed) == {
        "a": 'find "the" recipe',
        "b": "mix well",
        **{event: event for event in "cdefg"},
    }
    assert parsed.graph.events["a"].minutes == 2.5
    assert edges(parsed) == [
        ("a", "b"), ("b", "c"), ("b", "d"), ("a", "d"), ("e", "g"), ("f", "g"),
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
    assert "a" in parsed.graph.events
    assert repairs(parsed) == [expected]


def test_steps_in_the_braces_of_a_graph_are_steps() -> None:
    parsed = parse("digraph {\nstep0: find the recipe;\nstep1: mix;\nstep0 -> step1;\n}")
    assert parsed.dialect is Dialect.STEPS
    assert events(parsed) == {"0": "find the recipe", "1": "mix"}


@pytest.mark.parametrize(
    "written",
    [
        "**step0**: find\n**step1**: mix\n**step2**: eat\nstep0 -> step1\nstep1 -> step2",
        "step0. find\nstep1. mix\nstep2. eat\nstep0 -> step1 -> step2",
        "Step 0 - find\nStep 1 - mix\nStep 2 - eat\nStep 0 --> Step 1\nStep 1 --> Step 2",
        "0. find\n1. mix\n2. eat\n0 -> 1\n1 -> 2",
        "step0: find; step1: mix; step2: eat; step0 -&gt; step1; step1 -&gt; step2",
        "flowchart TD\n 0[find] --> 1(mix)\n 1 -->|then| 2{eat}\n style 0 fill:#f00",
        'graph LR\n0["find"]\n1["mix"]\n2["eat"]\n0-->1-->2',
        "step0: find\nstep1: mix\nstep2: eat\nfind -> mix;\nmix -> eat;",
        (
            '{"nodes": [{"id": 0, "label": "find"}, {"id": 1, "label": "mix"}, {"id": "2", "name": "eat"}], '
            '"links": [{"from": 0, "to": 1}, {"source": "step1", "target": "step2"}]}'
        ),
        '{"step0": "find", "step1": "mix", "step2": "eat", "edges": ["step0 -> step1", ["1", "2"]]}',
    ],
)
def test_ways_to_write_a_whole_graph_without_loss(written: str) -> None:
    parsed = parse(written)
    assert events(parsed) == {"0": "find", "1": "mix", "2": "eat"}
    assert edges(parsed) == [("0", "1"), ("1", "2")]
    assert parsed.repairs == []


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("step0 -> step1, step2", [("0", "1"), ("0", "2")]),
        ("step0 -> step1 and step2", [("0", "1"), ("0", "2")]),
        ("step0, step1 -> step2", [("0", "2"), ("1", "2")]),
        ("step0 -> step1, step1 -> step2", [("0", "1"), ("1", "2")]),
        ("flowchart TD\n0 & 1 --> 2", [("0", "2"), ("1", "2")]),
    ],
)
def test_several_sources_and_targets(written: str, expected: list[tuple[str, str]]) -> None:
    assert sorted(edges(parse(written))) == expected


def test_edges_between_texts_name_the_events() -> None:
    parsed = parse("find the recipe -> mix;\nmix -> bake;")
    assert parsed.dialect is Dialect.TEXTS
    assert events(parsed) == {text: text for text in ("find the recipe", "mix", "bake")}
    assert edges(parsed) == [("find the recipe", "mix"), ("mix", "bake")]


STATED = "step0: find; step1: mix; step2: eat;\nstep0 -> step1;\nstep1 -> step2;\n"


@pytest.mark.parametrize(
    "prose",
    [
        "Do not add step1 -> step0.",
        "Note: step1 -> step0 is not required.",
        "Note that step2 -> step0 would make a cycle.",
        "I left out step0 -> step2 because it follows.",
        "There is no edge 2 -> 0.",
        "// step2 -> step0",
        "# step2 -> step0",
        "Left out: step0 -> step2",
        "Left out:\n- step0 -> step2\n- step2 -> step0",
        "step0 -> step2 (not needed)",
        "step0 -> step2 is a shortcut",
    ],
)
def test_an_edge_that_is_not_stated_is_none_and_is_listed(prose: str) -> None:
    parsed = parse(STATED + prose)
    assert events(parsed) == {"0": "find", "1": "mix", "2": "eat"}
    assert edges(parsed) == [("0", "1"), ("1", "2")]
    assert any(repair.kind is RepairKind.TEXT_DROPPED for repair in parsed.repairs)


@pytest.mark.parametrize("heading", ["Remove a stain without soap:", "How to avoid traffic:", "Edges:"])
def test_a_scenario_in_the_heading_denies_nothing(heading: str) -> None:
    assert edges(parse(f"{heading}\n{STATED}")) == [("0", "1"), ("1", "2")]


@pytest.mark.parametrize(
    "prose",
    [
        "Do not add mix -> find the recipe;",
        "Note: find the recipe -> bake is not required.",
        "// mix -> find the recipe",
        "# mix -> find the recipe",
    ],
)
def test_prose_and_comments_are_no_events(prose: str) -> None:
    parsed = parse(f"find the recipe -> mix;\n{prose}\nmix -> bake;")
    assert list(events(parsed)) == ["find the recipe", "mix", "bake"]
    assert edges(parsed) == [("find the recipe", "mix"), ("mix", "bake")]


@pytest.mark.parametrize(
    "written",
    [
        "(1) -> (2), (2) -> (3)",
        "[1] -> [2]\n[2] -> [3]",
        "Event 1 -> Event 2\nEvent 2 -> Event 3",
        "**Event 1** --> **Event 2**\n**Event 2** --> **Event 3**",
        "Event 1 (find) -> Event 2 (mix)\nEvent 2 (mix) -> Event 3 (eat)",
        "1. Event 1 -> Event 2\n2. Event 2 -> Event 3",
        "(1, 2), (2, 3)",
        "Edges: [(1, 2), (2, 3)]",
        "- from 1 to 2\n- from Event 2 to Event 3.",
        "| from | to |\n|---|---|\n| 1 | 2 |\n| 2 | 3 |",
        "1 -> 2: the dough needs it\n2 -> 3 (of course)",
    ],
)
def test_ways_to_write_edges_between_numbers(written: str) -> None:
    assert edges(parse(written)) == [("1", "2"), ("2", "3")]


def test_pairs_in_prose_are_no_edges() -> None:
    assert parse("Take the eggs (1, 2) and the pan (2, 3) from the shelf.").graph is None


@pytest.mark.parametrize("text", ["Sure, I'd go a -> b.", "1. find\n2. mix", "<think>step0 -> step1"])
def test_prose_and_lists_and_reasoning_are_no_graph(text: str) -> None:
    parsed = parse(text)
    assert parsed.graph is None
    assert parsed.repairs


def test_the_last_of_two_graphs_counts_and_the_first_is_listed() -> None:
    draft, correction = (
        f"```\nstep0: a; step1: b; {edge}\n```" for edge in ("step1 -> step0", "step0 -> step1")
    )
    fenced = f"Draft:\n{draft}\nNo:\n{correction}"
    for text in (fenced, "digraph { 1 -> 0 } No, digraph { 0 -> 1 }"):
        parsed = parse(text)
        assert edges(parsed) == [("0", "1")]
        assert any(repair.kind is RepairKind.TEXT_DROPPED for repair in parsed.repairs)


def test_fences_that_hold_parts_of_one_graph_are_read_together() -> None:
    parsed = parse("```\nstep0: a; step1: b\n```\nThe edges:\n```\nstep0 -> step1\n```")
    assert events(parsed) == {"0": "a", "1": "b"}
    assert edges(parsed) == [("0", "1")]


def test_edges_within_reasoning_are_dropped_and_listed() -> None:
    parsed = parse("<think>step1 -> step0</think>\nstep0: a; step1: b; step0 -> step1")
    assert edges(parsed) == [("0", "1")]
    assert repairs(parsed) == [(RepairKind.TEXT_DROPPED, "<think>step1 -> step0</think>")]


def test_json_of_the_release() -> None:
    parsed = parse(
        'Result: {"scenario": "ride", "context": "NONE", "events": {"0": "pay", "1": "NONE", "2": "ride"},'
        ' "events_minutes": {"0": 3}, "gold_edges_for_prediction": ["1->0", "0->2", "0=2"]}'
    )
    assert parsed.dialect is Dialect.JSON
    assert events(parsed) == {"0": "pay", "1": "decided to ride", "2": "ride"}
    assert edges(parsed) == [("1", "0"), ("0", "2")]
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
    assert encode_read_graph(parsed.graph).events == message.events
    assert set(edges(parsed)) == {(edge.source_id, edge.target_id) for edge in message.edges}
    assert parsed.repairs == []


@given(
    st.text(alphabet="step01 ->:;\n{}[]\"<digraph,=a'`\\/*#\x00", max_size=200),
    st.sampled_from([None, *Dialect]),
)
def test_any_text_is_read_and_positions_lie_in_it(text: str, dialect: Dialect | None) -> None:
    parsed = parse(text, dialect)
    assert all(0 <= repair.position <= len(text) for repair in parsed.repairs)
    assert parsed.graph is None or parsed.graph.events


HOSTILE = {
    "digits": ("", "1"),
    "one edge again and again": ("", "step0->step1;"),
    "a long label": ("step0: ", "x"),
    "NUL bytes": ("", "\0"),
    "NUL bytes in a label": ("step0: ", "\0"),
    "deep subgraphs": ("digraph {", "{"),
    "deep lists": ("", "["),
    "open comments": ("digraph {", "/*"),
    "quotation marks": ("digraph {", '\\"'),
    "open brackets": ("digraph {a ", "["),
    "angles": ("digraph {", "<"),
    "no tokens": ("digraph {", "@"),
    "heads of graphs": ("", "digraph "),
    "fences": ("", "`"),
    "open fences": ("", "```\n{"),
    "reasoning": ("", "<think>"),
    "closed reasoning": ("", "<think></think>"),
    "flowcharts": ("", "graph TD\n"),
    "a flowchart of links": ("graph TD\n", "a-->"),
    "a flowchart of brackets": ("graph TD\n", "a[["),
    "arrows between texts": ("", "a -> b;"),
    "one arrow chain": ("", "a -> "),
    "lists of targets": ("step0 -> ", "step1, "),
    "lists of sources": ("step0 -> step2\n", "step1, "),
    "bold marks": ("", "**step"),
    "numbered lines": ("1 -> 2\n", "1. a\n"),
}
"""The beginning of a text, and what it repeats."""
LENGTH = 50_000
"""The length of a hostile text in characters; it doubles."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_answered_or_refused_in_linear_time(name: str) -> None:
    beginning, pattern = HOSTILE[name]

    def read(length: int) -> None:
        answered_or_refused(beginning + pattern * (length // len(pattern)))

    assert faster_than_linear(partial(read, LENGTH), partial(read, 2 * LENGTH)) is None


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("; ".join(f"step{i} -> step{(7 * i + k) % 4000}" for i in range(4000) for k in range(15)), True),
        ("".join(f"step{i}: e;" for i in range(5001)), True),
        ("digraph {{" + " ".join(f"a{i}" for i in range(2400)) + "} -> {b c d}}" * 20, False),
    ],
    ids=["edges everywhere", "five thousand and one events", "a product of subgraphs"],
)
def test_graphs_that_are_too_large_are_refused(text: str, *, refused: bool) -> None:
    assert (answered_or_refused(text) is not None) == refused


def answered_or_refused(text: str) -> TooLargeError | None:
    """Reads a text; returns the refusal of one that is too large."""
    refusal: TooLargeError | None = None
    try:
        assert len(parse(text).repairs) <= MAX_REPAIRS
    except TooLargeError as error:
        refusal = error
    assert refusal is None or refusal.actual > refusal.limit
    return refusal
