"""Answers of models that hold a graph, in every notation, with the graph that each of them states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Edges = Sequence[tuple[int, int]]


class Script(NamedTuple):
    """Events, and edges between their places from 0."""

    events: Sequence[str]
    edges: Edges


class GraphAnswer(NamedTuple):
    """A text and what it states."""

    form: str
    text: str
    events: Sequence[str]
    """The events that it names; of an answer with edges alone, those that were asked about."""
    edges: frozenset[tuple[str, str]]
    """The edges between the texts of events."""


SCRIPTS = (
    Script(("find the recipe", "mix the dough", "bake it"), ((0, 1), (1, 2))),
    Script(
        ("decided to paint a wall", "buy paint", "cover the floor", "paint the wall"),
        ((0, 1), (0, 2), (1, 3), (2, 3)),
    ),
    Script(
        ("get 2 eggs, salt and oil", "heat the pan", "crack the eggs", "fry them", "serve"),
        ((0, 2), (1, 3), (2, 3), (3, 4)),
    ),
)


def named(script: Script, name: Callable[[int], str], arrow: str = " -> ", end: str = "") -> str:
    return "\n".join(f"{one}{arrow}{other}{end}" for one, other in ends(script, name))


def ends(script: Script, name: Callable[[int], str]) -> Iterator[tuple[str, str]]:
    return ((name(before), name(after)) for before, after in script.edges)


def listed(script: Script, line: str) -> str:
    return "\n".join(line.format(n=n, m=n + 1, text=text) for n, text in enumerate(script.events))


def joined(
    line: str, name: str, arrow: str = " -> ", end: str = "", between: str = "\n"
) -> Callable[[Script], str]:
    """Events by a line each, then edges between names; {n} counts from 0, {m} from 1."""

    def write(script: Script) -> str:
        edges = named(script, lambda n: name.format(n=n, m=n + 1, text=script.events[n]), arrow, end)
        return f"{listed(script, line)}{between}{edges}"

    return write


def dumped(make: Callable[[Script], object]) -> Callable[[Script], str]:
    return lambda script: json.dumps(make(script))


def pairs(script: Script, first: int = 0) -> list[list[int]]:
    return [[before + first, after + first] for before, after in script.edges]


def dot(script: Script) -> str:
    nodes = "\n".join(f'  e{n} [label="{text}"];' for n, text in enumerate(script.events))
    return f"digraph G {{\n{nodes}\n{named(script, 'e{}'.format, ' -> ', ';')}\n}}"


def mermaid(script: Script) -> str:
    nodes = "\n".join(f'  E{n}["{text}"]' for n, text in enumerate(script.events))
    return f"flowchart TD\n{nodes}\n{named(script, 'E{}'.format, ' --> ')}"


WHOLE: dict[str, Callable[[Script], str]] = {
    "steps": joined("step{n}: {text};", "step{n}", end=";"),
    "steps of Figure 6": joined("Step{n}: {text};", "Step{n}", " --> ", ";"),
    "steps from 1": joined("Step {m}: {text}", "Step {m}", between="\n\n"),
    "bold steps": joined("**Step {m}**: {text}", "**Step {m}**", " → "),
    "numbers": joined("{m}. {text}", "{m}", between="\n\nEdges:\n"),
    "numbers with bullets": lambda script: (
        listed(script, "{m}. {text}")
        + "\n\n**Edges:**\n"
        + "\n".join(f"- {a} -> {b}" for a, b in pairs(script, 1))
    ),
    "numbers in brackets": joined("({m}) {text}", "({m})", between="\n\n"),
    "numbers in square brackets": joined("[{m}] {text}", "[{m}]", between="\n\n"),
    "numbers with parentheses": joined("{m}) {text}", "{m}", " => "),
    "events": joined("Event {m}: {text}", "Event {m}", between="\n\n"),
    "events with long arrows": joined("Event {m}: {text}", "Event {m}", " --> "),
    "events of one letter": joined("E{m}: {text}", "E{m}"),
    "events with their texts": joined("Event {m}: {text}", "Event {m} ({text})"),
    "numbers, then steps": joined("{m}. {text}", "step {m}", between="\n\n"),
    "entities": joined("step{n}: {text}", "step{n}", " -&gt; "),
    "texts": lambda script: named(script, lambda n: script.events[n], " -> ", ";"),
    "quoted texts": lambda script: named(script, lambda n: f'"{script.events[n]}"'),
    "texts below steps": joined("step{n}: {text}", "{text}", end=";"),
    "pairs": lambda script: (
        listed(script, "{m}. {text}") + "\n\n" + ", ".join(f"({a}, {b})" for a, b in pairs(script, 1))
    ),
    "a list of pairs": lambda script: (
        listed(script, "{m}. {text}")
        + "\n\nEdges: ["
        + ", ".join(f"({a},{b})" for a, b in pairs(script, 1))
        + "]"
    ),
    "from and to": lambda script: (
        listed(script, "{m}. {text}") + "\n\n" + "\n".join(f"from {a} to {b}" for a, b in pairs(script, 1))
    ),
    "a table": lambda script: (
        listed(script, "{m}. {text}")
        + "\n\n| from | to |\n|---|---|\n"
        + "\n".join(f"| {a} | {b} |" for a, b in pairs(script, 1))
    ),
    "DOT": dot,
    "DOT in a fence": lambda script: f"Here is the graph:\n\n```dot\n{dot(script)}\n```\nIt has no cycle.",
    "DOT of texts": lambda script: (
        "digraph {\n" + named(script, lambda n: f'"{script.events[n]}"', " -> ", ";") + "\n}"
    ),
    "Mermaid": mermaid,
    "Mermaid in a fence": lambda script: f"```mermaid\n{mermaid(script)}\n```",
    "JSON of ids": dumped(
        lambda script: {
            "events": [{"id": str(n), "text": text} for n, text in enumerate(script.events)],
            "edges": [[str(a), str(b)] for a, b in script.edges],
        }
    ),
    "JSON of links": dumped(
        lambda script: {
            "nodes": [{"id": n, "label": text} for n, text in enumerate(script.events, 1)],
            "links": [{"from": a, "to": b} for a, b in pairs(script, 1)],
        }
    ),
    "JSON of a list, from 0": dumped(lambda script: {"events": script.events, "edges": pairs(script)}),
    "JSON of a list, from 1": dumped(lambda script: {"events": script.events, "edges": pairs(script, 1)}),
    "JSON of texts": dumped(
        lambda script: {
            "events": script.events,
            "edges": [[script.events[a], script.events[b]] for a, b in script.edges],
        }
    ),
    "JSON of steps": dumped(
        lambda script: {
            **{f"step{n}": text for n, text in enumerate(script.events)},
            "edges": [f"step{a} -> step{b}" for a, b in script.edges],
        }
    ),
    "JSON of numbers": dumped(
        lambda script: {
            "events": [{"number": n, "event": text} for n, text in enumerate(script.events, 1)],
            "edges": [{"before": a, "after": b} for a, b in pairs(script, 1)],
        }
    ),
}
"""Answers with events and edges."""

EDGES: dict[str, Callable[[Script], str]] = {
    "numbers": lambda script: named(script, lambda n: str(n + 1)),
    "numbers in a line": lambda script: ", ".join(f"{a} -> {b}" for a, b in pairs(script, 1)),
    "long arrows": lambda script: named(script, lambda n: str(n + 1), " --> ", ";"),
    "arrows of one character": lambda script: "\n".join(f"- {a}→{b}" for a, b in pairs(script, 1)),
    "events": lambda script: named(script, lambda n: f"Event {n + 1}"),
    "bold events": lambda script: named(script, lambda n: f"**Event {n + 1}**"),
    "events with their texts": lambda script: named(script, lambda n: f"Event {n + 1} ({script.events[n]})"),
    "a label": lambda script: "Edges: " + ", ".join(f"Event {a} -> Event {b}" for a, b in pairs(script, 1)),
    "a numbered list": lambda script: "\n".join(
        f"{k}. Event {a} -> Event {b}" for k, (a, b) in enumerate(pairs(script, 1), 1)
    ),
    "steps": lambda script: named(script, lambda n: f"step{n + 1}", " -> ", ";"),
    "numbers in brackets": lambda script: ", ".join(f"({a}) -> ({b})" for a, b in pairs(script, 1)),
    "pairs": lambda script: ", ".join(f"({a}, {b})" for a, b in pairs(script, 1)),
    "a list of pairs": lambda script: f"edges = {[tuple(pair) for pair in pairs(script, 1)]}",
    "from and to": lambda script: "\n".join(f"- from {a} to {b}" for a, b in pairs(script, 1)),
    "arrays": dumped(lambda script: pairs(script, 1)),
    "an object of arrays": dumped(lambda script: {"edges": pairs(script, 1)}),
    "an array of objects": dumped(lambda script: [{"from": a, "to": b} for a, b in pairs(script, 1)]),
    "an array of strings": dumped(lambda script: {"edges": [f"{a}->{b}" for a, b in pairs(script, 1)]}),
    "an array of texts": dumped(
        lambda script: [[script.events[a], script.events[b]] for a, b in script.edges]
    ),
    "DOT": lambda script: "digraph {\n" + named(script, lambda n: str(n + 1), " -> ", ";") + "\n}",
    "Mermaid": lambda script: "graph TD\n" + named(script, lambda n: str(n + 1), " --> "),
    "texts": lambda script: named(script, lambda n: script.events[n], " -> ", ";"),
    "quoted texts": lambda script: named(script, lambda n: f'"{script.events[n]}"'),
    "steps with texts of their own": WHOLE["steps"],
    "DOT with texts": dot,
    "Mermaid with texts": mermaid,
    "a fence": lambda script: (
        f"The edges are:\n```\n{named(script, lambda n: str(n + 1))}\n```\nNothing else is needed."
    ),
    "reasons": lambda script: "\n".join(
        f"- Event {a} -> Event {b}: the second needs the first" for a, b in pairs(script, 1)
    ),
    "reasons in brackets": lambda script: "\n".join(f"{a} -> {b} (needs it)" for a, b in pairs(script, 1)),
    "what is left out": lambda script: (
        named(script, lambda n: f"Event {n + 1}")
        + f"\n\nDo not add Event {len(script.events)} -> Event 1."
        + f"\nNote: Event 1 -> Event {len(script.events)} is not required."
    ),
    "comments": lambda script: (
        f"// first the order\n{named(script, lambda n: str(n + 1))}\n"
        f"# {len(script.events)} -> 1 would be a cycle"
    ),
    "left out below a heading": lambda script: (
        f"Edges:\n{named(script, lambda n: str(n + 1))}\n\nLeft out:\n1 -> {len(script.events)}"
    ),
    "prose": lambda script: (
        f"I think about it first.\n{named(script, lambda n: str(n + 1))}\n"
        f"I do not list 1 -> {len(script.events)} because it follows."
    ),
}
"""Answers with edges between the numbers, from 1, of events that were shown."""


def graph_answers(forms: dict[str, Callable[[Script], str]]) -> list[GraphAnswer]:
    """Every form with every script."""
    return [
        GraphAnswer(
            form,
            write(script),
            script.events,
            frozenset((script.events[a], script.events[b]) for a, b in script.edges),
        )
        for form, write in forms.items()
        for script in SCRIPTS
    ]
