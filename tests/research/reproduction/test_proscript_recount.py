"""Counts proScript again from scripts that this module writes and the answers of scripted models alone."""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import pytest

from tests.support.drawn import drawn_bars, drawn_intervals, drawn_lines
from tests.support.openai_server import Answer, Body
from tests.support.recounts import check_mean, draw, shown, student, wilson
from tests.support.reproductions import read_csv, reproduce_with

pytestmark = pytest.mark.timeout(540)

MODELS = ("model-a", "model-b")
SCRIPTS = 24
VERBS = ("wash", "carry", "paint", "fold", "count", "measure", "borrow", "polish")
NOUNS = (
    *("violin", "ladder", "curtain", "passport", "bucket", "telescope"),
    *("tractor", "umbrella", "candle", "hammock", "compass", "saddle"),
)
TYPES = (
    *("incorrect order", "missing event", "irrelevant or redundant event", "order ambiguity by context"),
    *("granularity of events", "paraphrased event", "wrong revision"),
)


class Graph(NamedTuple):
    """Events and the edges between their places."""

    events: tuple[str, ...]
    edges: frozenset[tuple[int, int]]


class Script(NamedTuple):
    """A script of the development part. Its first event is the root, its last one the scenario."""

    scenario: str
    graph: Graph
    minutes: float


def written(number: int) -> Script:
    """Chains of events side by side between a root and the scenario, which is a transitive reduction."""
    width, middle = 1 + number % 4, 3 + draw("length", number) % 3
    # Two scripts are of one scenario.
    scenario = f"{VERBS[number % 8]} every {NOUNS[number % 12]}" if number else "paint every curtain"
    if number == 10:
        scenario = "paint every curtain"
    root = f"decided to {scenario}" if number % 2 else f"woke up early for task {number}"
    names = [
        f"{VERBS[draw(number, n, 'v') % 8]} the {NOUNS[(number + 5 * n) % 12]} at place {n}"
        for n in range(middle)
    ]
    last = middle + 1
    edges = set[tuple[int, int]]()
    for chain in range(min(width, middle)):
        path = [0, *range(1 + chain, last, min(width, middle)), last]
        edges |= set(pairwise(path))
    return Script(scenario, Graph((root, *names, scenario), frozenset(edges)), 10 ** (number % 5))


PART = [written(number) for number in range(SCRIPTS)]


def write(file: Path) -> None:
    """Writes the scripts in the released form, in which the events are shuffled."""
    rows = []
    for number, one in enumerate(PART):
        size = len(one.graph.events)
        order = [*sorted(range(size - 1), key=lambda place: draw("order", number, place)), size - 1]
        new = {place: index for index, place in enumerate(order)}
        edges = sorted((new[a], new[b]) for a, b in one.graph.edges)
        texts = [one.graph.events[place] for place in order]
        root = new[0]
        context = one.graph.events[0]
        decided = context == f"decided to {one.scenario}"
        rows.append(
            {
                "scenario": one.scenario,
                "events": {str(n): "NONE" if n == root and decided else text for n, text in enumerate(texts)},
                "context": "NONE" if decided else context,
                "minutes": one.minutes,
                "events_minutes": {str(n): 1 for n in range(size) if n not in {root, size - 1}},
                "flatten_input_for_edge_prediction": "; ".join(
                    f"step{n}: {text}" for n, text in enumerate(texts)
                ),
                "flatten_input_for_script_generation": f"You want to {one.scenario}.",
                "flatten_output_for_edge_prediction": "; ".join(f"step{a} -> step{b}" for a, b in edges),
                "flatten_output_for_script_generation": "",
                "gold_edges_for_prediction": [f"{a}->{b}" for a, b in edges],
            }
        )
    file.write_text(json.dumps(rows))


def predicted(number: int, model: str) -> frozenset[tuple[int, int]] | str:
    """The edges that a model predicts for the events of a script, or what comes in their place."""
    graph = PART[number].graph
    edges, last = sorted(graph.edges), len(graph.events) - 1
    place = draw("edges", number, model)
    if place < 60:
        return "refused"
    if place < 120:
        return "unreadable"
    if place < 400:
        return graph.edges
    if place < 600:
        return frozenset((n, n + 1) for n in range(last))
    turned = edges[place % len(edges)]
    kept = {edge for edge in edges if edge != turned}
    return frozenset(kept | {turned[::-1]}) if place < 800 and model == "model-a" else frozenset(kept)


def generated(number: int, model: str) -> Graph | str:
    """The script that a model writes, or what comes in its place."""
    graph = PART[number].graph
    last = len(graph.events) - 1
    place = draw("script", number, model)
    # The reference of the tenth script is not the smallest one of its scenario.
    if place < 60 or (number, model) == (10, "model-a"):
        return "refused"
    if place < 120:
        return "unreadable"
    if place < 300:
        return graph
    if place < 380:  # The same by meaning.
        return Graph(tuple(f"carefully {event}" for event in graph.events), graph.edges)
    if place < 480:  # Another event.
        return Graph((graph.events[0], "whistle to the moon", *graph.events[2:]), graph.edges)
    chain = frozenset((n, n + 1) for n in range(last))
    if place < 600:
        return Graph(graph.events, chain)
    if place < 800:  # An event less, in a chain.
        return Graph(graph.events[:1] + graph.events[2:], frozenset((n, n + 1) for n in range(last - 1)))
    events = (*graph.events[:-1], "whistle to the moon", graph.events[-1])
    return Graph(events, chain | {(last, last + 1)})


class Server:
    """Both models."""

    def __call__(self, body: Body) -> Answer:
        prompt, model = shown(body)[1], body["model"]
        name = body["response_format"]["json_schema"]["name"]
        if name == "edges":
            listed = re.findall(r"^Event (\d+): (.*)$", prompt, re.MULTILINE)
            names = {text: int(number) for number, text in listed}
            return self._edges(names, model)
        scenario = re.findall(r"\[BEGIN scenario \w+\]\n(.*)\n", prompt)[0]
        first = re.findall(r"\[BEGIN first event \w+\]\n(.*)\n", prompt)[0]
        size = int(re.findall(r"the first and the last included: (\d+)", prompt)[0])
        (number,) = (
            number
            for number, one in enumerate(PART)
            if (one.scenario, one.graph.events[0], len(one.graph.events)) == (scenario, first, size)
        )
        graph = generated(number, model)
        if isinstance(graph, str):
            return _instead(graph)
        events = [{"number": n, "event": text} for n, text in enumerate(graph.events, start=1)]
        return _json(
            idea="So.", events=events, edges=_edges({n: n + 1 for n in range(len(events))}, graph.edges)
        )

    @staticmethod
    def _edges(names: Mapping[str, int], model: str) -> Answer:
        for number, one in enumerate(PART):
            if set(one.graph.events) == set(names):
                edges = predicted(number, model)
                if isinstance(edges, str):
                    return _instead(edges)
                return _json(
                    reasoning="So.",
                    edges=_edges({n: names[t] for n, t in enumerate(one.graph.events)}, edges),
                )
        # Events of a model's own script: a chain in the order of their texts.
        chain = sorted(names)
        return _json(
            reasoning="So.",
            edges=[{"before": names[a], "after": names[b]} for a, b in pairwise(chain)],
        )


def _instead(kind: str) -> Answer:
    return Answer(refusal="No.") if kind == "refused" else Answer("I am not sure.")


def _json(**members: Any) -> Answer:
    return Answer(json.dumps(members))


def _edges(names: Mapping[int, int], edges: Iterable[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"before": names[a], "after": names[b]} for a, b in sorted(edges)]


def piped(number: int, model: str) -> Graph | str:
    """The script of the pipeline: the events that were written, ordered anew."""
    graph = generated(number, model)
    if isinstance(graph, str):
        return graph
    if set(graph.events) == set(PART[number].graph.events):
        edges = predicted(number, model)
        return edges if isinstance(edges, str) else Graph(PART[number].graph.events, edges)
    chain = sorted(range(len(graph.events)), key=lambda place: graph.events[place])
    return Graph(graph.events, frozenset(pairwise(chain)))


class Edits(NamedTuple):
    """The fewest edits from a script to another, by kind."""

    total: int
    replaced_events: int
    replaced_edges: int
    deleted_events: int
    inserted_events: int
    deleted_edges: int
    inserted_edges: int


def compare(script: Graph, target: Graph) -> Edits:
    """The edit distance (section 6.2). Every edit costs 1; a kept edge is replaced if one of its ends is."""
    turned = len(script.events) > len(target.events)
    small, large = (target, script) if turned else (script, target)
    best: Edits | None = None
    for places in permutations(range(len(large.events)), len(small.events)):
        other = sum(a != large.events[b] for a, b in zip(small.events, places, strict=True))
        same = [a == large.events[b] for a, b in zip(small.events, places, strict=True)]
        kept = [(a, b) for a, b in small.edges if (places[a], places[b]) in large.edges]
        changed = sum(not (same[a] and same[b]) for a, b in kept)
        less, more = len(small.edges) - len(kept), len(large.edges) - len(kept)
        gone = len(large.events) - len(small.events)
        total = other + changed + less + more + gone
        deleted, inserted = (more, less) if turned else (less, more)
        one = Edits(total, other, changed, gone * turned, gone * (not turned), deleted, inserted)
        if best is None or one < best:
            best = one
    assert best is not None
    return best


EMPTY = Graph((), frozenset())


def distances(
    made: Callable[[int, str], Graph | str], model: str, *, meaning: bool = True, nearest: bool = False
) -> list[Edits]:
    """By script the edits to its reference, or to the nearest of its scenario.

    A refusal is a script without events; what cannot be read is left out.
    """
    found = []
    for number, one in enumerate(PART):
        graph = made(number, model)
        if graph == "unreadable":
            continue
        graph = EMPTY if isinstance(graph, str) else graph
        if meaning:
            graph = Graph(tuple(event.removeprefix("carefully ") for event in graph.events), graph.edges)
        targets = (
            [other.graph for other in PART if other.scenario == one.scenario] if nearest else [one.graph]
        )
        found.append(min(compare(graph, target) for target in targets))
    return found


def f1(
    reference: frozenset[tuple[int, int]], edges: frozenset[tuple[int, int]]
) -> tuple[float, float, float]:
    """F1, and precision and recall as section 5.2 prints them, which is the other way round than is usual."""
    both = len(reference & edges)
    precision, recall = both / len(reference), both / len(edges) if edges else 0.0
    return (2 * precision * recall / (precision + recall) if both else 0.0), precision, recall


def degree(graph: Graph) -> int:
    """The most edges into or out of one event."""
    ends = Counter((place, side) for edge in graph.edges for side, place in enumerate(edge))
    return max(ends.values())


def revision(number: int, text: str, person: int) -> tuple[str, Sequence[str]]:
    """What a person makes of a script, and the types of the changes."""
    place = draw("revision", number, person) % 4
    lines = text.split(";\n")
    if place == 0:
        return text, ()
    if place == 1:
        return ";\n".join(lines[:-1]), TYPES[:1]
    if place == 2:
        lines[1] = "step1: whistle to the moon"
        return ";\n".join(lines), (TYPES[5], TYPES[4])
    return ";\n".join([*lines, "step90: sleep under a bridge", "step0 -> step90"]), (TYPES[1],)


def parse(text: str) -> Graph:
    """The script of a text in numbered steps."""
    events = dict(re.findall(r"(step\d+): ([^;]*)", text))
    places = {name: place for place, name in enumerate(events)}
    pairs = re.findall(r"(step\d+) -> (step\d+)", text)
    return Graph(tuple(events.values()), frozenset((places[one], places[other]) for one, other in pairs))


def ordered(number: int, person: int) -> frozenset[tuple[int, int]]:
    """How a person orders the events of a script."""
    graph = PART[number].graph
    if draw("order", number, person) < 500:
        return graph.edges
    return frozenset((n, n + 1) for n in range(len(graph.events) - 1))


def vote(pair: str, first: str, person: int) -> str:
    """What a person says of the first script of a pair."""
    other = ("better", "equal", "worse")[draw("vote", pair, person) % 3]
    return {"better": "worse", "worse": "better"}.get(other, other) if first == OWN else other


OWN = "model-a, generate"
"""The approach with which all others are compared."""
PEOPLE = (1, 2, 3)
ORDER = (OWN, "model-a, pipeline", "model-b, generate", "model-b, pipeline", "Human")


class Reproduced:
    """A reproduction, before and after people complete the sheets."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        write(folder / "proscript_dev.json")
        options = [part for model in MODELS for part in ("--model", model)]
        finished, _ = reproduce_with(Server(), "proscript", folder, self.out, *options)
        assert finished.code in {0, 4}, finished.err
        sheets = self.out / "sheets"
        self.approaches = {row["id"]: row["approach"] for row in read_csv(self.out / "revisions-key.csv")}
        self.pairs = {
            row["id"]: (row["first"], row["second"]) for row in read_csv(self.out / "votes-key.csv")
        }
        self.scripts = {row["id"]: row["script"] for row in _lines(sheets / "revisions.jsonl")}
        self.orders = [row["id"] for row in _lines(sheets / "orders.jsonl")]
        for person in PEOPLE:
            with (sheets / f"orders-{person}.jsonl").open("w") as opened:
                for row in _lines(sheets / "orders.jsonl"):
                    number = int(row["id"])
                    found = re.findall(r"(step\d+): ([^;]*)", row["steps"])
                    names = {text: name for name, text in found}
                    texts = PART[number].graph.events
                    order = (f"{names[texts[a]]} -> {names[texts[b]]}" for a, b in ordered(number, person))
                    opened.write(json.dumps(row | {"order": "; ".join(order)}) + "\n")
            with (sheets / f"revisions-{person}.jsonl").open("w") as opened:
                for row in _lines(sheets / "revisions.jsonl"):
                    revised, types = revision(int(row["id"]), row["script"], person)
                    opened.write(json.dumps(row | {"revised": revised, "type": list(types)}) + "\n")
            rows = read_csv(sheets / "votes.csv")
            for row in rows:
                row["vote"] = vote(row["id"], self.pairs[row["id"]][0], person)
            with (sheets / f"votes-{person}.csv").open("w", newline="") as opened:
                writer = csv.DictWriter(opened, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        finished, server = reproduce_with(Server(), "proscript", folder, self.out, *options)
        assert finished.code in {0, 4}, finished.err
        assert not server.calls


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """A reproduction with two models and three people."""
    return Reproduced(tmp_path_factory.mktemp("proscript"))


def scores(model: str, numbers: Iterable[int] = range(SCRIPTS)) -> list[tuple[float, float, float]]:
    """The scores of the scripts. A refusal is a graph without edges; what cannot be read is left out."""
    found = []
    for number in numbers:
        edges = predicted(number, model)
        if edges != "unreadable":
            found.append(f1(PART[number].graph.edges, frozenset() if isinstance(edges, str) else edges))
    return found


def test_table_1_and_figure_5_are_means_over_the_scripts(reproduced: Reproduced) -> None:
    table = {row["Models"]: row for row in read_csv(reproduced.out / "table-1.csv")}
    for model in MODELS:
        found = scores(model)
        for column, values in zip(("F1", "P", "R"), zip(*found, strict=True), strict=True):
            check_mean(table[model], f"dev: {column}", values, (0, 1), of=SCRIPTS, unit=100)
    people = [
        f1(PART[number].graph.edges, ordered(number, person))
        for number in range(SCRIPTS)
        for person in PEOPLE
    ]
    # Several people order one script.
    number_of = [number for number in range(SCRIPTS) for _ in PEOPLE]
    for column, values in zip(("F1", "P", "R"), zip(*people, strict=True), strict=True):
        check_mean(table["people"], f"dev: {column}", values, (0, 1), clusters=number_of, unit=100)
    assert {table["random"][f"dev: {column} (judged)"] for column in ("F1", "P", "R")} == {str(SCRIPTS)}
    for one in PART:
        graph = nx.DiGraph(one.graph.edges)
        assert nx.is_directed_acyclic_graph(graph)
        assert set(nx.transitive_reduction(graph).edges) == set(one.graph.edges)
    lines = drawn_lines(reproduced.out / "figure-5.svg")
    groups = [
        [number for number, one in enumerate(PART) if degree(one.graph) == most] for most in (1, 2, 3, 4)
    ]
    expected = [
        [100 * statistics.fmean(one[0] for one in scores(model, group)) for group in groups]
        for model in MODELS
    ]
    everyone = [
        [f1(PART[number].graph.edges, ordered(number, person))[0] for number in group for person in PEOPLE]
        for group in groups
    ]
    expected.append([100 * statistics.fmean(values) for values in everyone])
    assert lines[:3] == [pytest.approx(line, abs=1e-3) for line in expected]
    ends = [student([one[0] for one in scores(model, group)], 0, 1) for model in MODELS for group in groups]
    ends += [
        student(values, 0, 1, [number for number in group for _ in PEOPLE])
        for values, group in zip(everyone, groups, strict=True)
    ]
    intervals = [pytest.approx((100 * one[0], 100 * one[1]), abs=1e-2) for one in ends if one]
    assert drawn_intervals(reproduced.out / "figure-5.svg")[: len(intervals)] == intervals
    # Random graphs do worse.
    assert max(lines[3]) < min(map(min, expected))


def test_section_4_and_figure_3_describe_the_scripts(reproduced: Reproduced) -> None:
    row = next(row for row in read_csv(reproduced.out / "section-4.csv") if row["Part"] == "dev")
    most = Counter(min(degree(one.graph), 4) for one in PART)
    told = [float(row[f"Maximum degree: {name}"]) for name in ("1", "2", "3", "4 and above")]
    assert told == [most[degrees] for degrees in (1, 2, 3, 4)]
    assert float(row["Events"]) == pytest.approx(statistics.fmean(len(one.graph.events) - 2 for one in PART))
    # From a minute, below an hour, below a day, and below a month.
    counts = [5, 5, 10, 4]
    bars = [bar for bar in drawn_bars(reproduced.out / "figure-3.svg") if bar > 1e-6]
    assert bars == pytest.approx([number / SCRIPTS for number in counts], abs=1e-4)


def test_table_2_has_the_edits_to_the_reference(reproduced: Reproduced) -> None:
    table = {row["Models"]: row for row in read_csv(reproduced.out / "table-2.csv")}
    for model in MODELS:
        for task, made in (("generate", generated), ("pipeline", piped)):
            row, found = table[f"{model}, {task}"], distances(made, model)
            columns = ("Graph Edit Dist", "V-Rep", "E-Rep", "V-Del", "V-Ins", "E-Del", "E-Ins")
            for column, values in zip(columns, zip(*found, strict=True), strict=True):
                check_mean(row, column, values, (0, math.inf))
            for column, options in (
                ("by text", {"meaning": False}),
                ("nearest reference", {"nearest": True}),
            ):
                totals = [one.total for one in distances(made, model, **options)]
                check_mean(row, column, totals, (0, math.inf))


def test_figure_7_has_the_majorities_of_the_votes(reproduced: Reproduced) -> None:
    table = {row["Approach"]: row for row in read_csv(reproduced.out / "figure-7.csv")}
    majorities = defaultdict[str, Counter[str]](Counter)
    for pair, (first, second) in reproduced.pairs.items():
        # As in the paper, an approach is better or worse than the one with which all are compared.
        said = Counter(vote(pair, "", person) for person in PEOPLE)
        winner = [name for name, count in said.items() if count >= 2]
        majorities[second if first == OWN else first][winner[0] if winner else "no majority"] += 1
    assert majorities.keys() == set(ORDER) - {OWN}
    bars = drawn_bars(reproduced.out / "figure-7.svg")
    intervals = drawn_intervals(reproduced.out / "figure-7.svg")
    for place, (approach, row) in enumerate(list(table.items())[:4]):
        counts = majorities[approach]
        assert row["pairs"] == str(counts.total())
        for series, column in enumerate(("better", "equal", "worse", "no majority")):
            share = 100 * counts[column] / counts.total()
            ends = [100 * end for end in wilson(counts[column], counts.total())]
            told = [float(row[f"{column}{part}"]) for part in ("", " (lower)", " (upper)", " (judged)")]
            assert told == pytest.approx([share, *ends, counts.total()])
            assert intervals[series * 4 + place] == pytest.approx(ends, abs=1e-2)
            if column != "no majority":
                # Beside the approaches of the run stand the six of the paper.
                assert bars[series * 10 + place] == pytest.approx(share, abs=1e-3)


def test_revisions_give_distances_and_types(reproduced: Reproduced) -> None:
    edits = {row["Models"]: row for row in read_csv(reproduced.out / "table-2-revisions.csv")}
    types = read_csv(reproduced.out / "table-4.csv")
    histogram, every = list[float](), Counter[str]()
    for approach in dict.fromkeys(sorted(reproduced.approaches.values(), key=ORDER.index)):
        found, named = list[Edits](), Counter[str]()
        for sheet, text in reproduced.scripts.items():
            if reproduced.approaches[sheet] == approach:
                for person in PEOPLE:
                    revised, kinds = revision(int(sheet), text, person)
                    found.append(compare(parse(text), parse(revised)))
                    named.update(kinds)
        row = edits[approach]
        assert (row["revisions"], row["scripts"]) == (str(len(found)), str(len(found) // 3))
        columns = ("Graph Edit Dist", "V-Rep", "E-Rep", "V-Del", "V-Ins", "E-Del", "E-Ins")
        # Several people revise one script.
        numbers = [number for number in range(len(found) // 3) for _ in PEOPLE]
        for column, values in zip(columns, zip(*found, strict=True), strict=True):
            check_mean(row, column, values, (0, math.inf), clusters=numbers)
        told = [float(row[approach]) for row in types]
        assert told == pytest.approx([100 * named[kind] / named.total() for kind in TYPES])
        assert {row[f"{approach} (judged)"] for row in types} == {str(named.total())}
        for one in types:
            low, share, high = (float(one[f"{approach}{part}"]) for part in (" (lower)", "", " (upper)"))
            assert 0 <= low <= share <= high <= 100
            assert low < high
        zero = statistics.fmean(one.total == 0 for one in found)
        every.update(named)
        histogram += [100 * zero, 100 - 100 * zero, 0, 0, 0, 0]
        assert max(one.total for one in found) == 3
    assert drawn_bars(reproduced.out / "figure-8.svg") == pytest.approx(histogram, abs=1e-3)
    assert len(drawn_intervals(reproduced.out / "figure-8.svg")) == len(histogram)
    examples = {row["Revision types"] for row in read_csv(reproduced.out / "table-3.csv")}
    assert examples == every.keys()


def test_a_sheet_does_not_show_the_order(reproduced: Reproduced) -> None:
    rows = _lines(reproduced.out / "sheets" / "orders.jsonl")
    assert sorted(int(row["id"]) for row in rows) == list(range(SCRIPTS))
    shuffled = 0
    for row in rows:
        assert "->" not in row["steps"]
        assert not row["order"]
        events = re.findall(r"step\d+: ([^;]*)", row["steps"])
        shuffled += events != list(PART[int(row["id"])].graph.events)
    assert shuffled > SCRIPTS / 2
