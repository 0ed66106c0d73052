"""The exact edit distance of script graphs against networkx, under the same time limit.

Three kinds of pair, all of proScript's shape: a script and a revision of it (a fifth of the events reworded,
a quarter of the edges moved), two scripts that share half of their events, and two that share none. Mode
PROSCRIPT. For networkx an edge's label is the labels of its ends, which makes its distance the same. The
ratios are of total times, and the geometric mean over pairs; where networkx ran into the limit, its time
counts as the limit, so the printed ratio is a lower bound.

    python bench/graph_edit_distance.py [--seconds 10] [--seed 1] [--sizes 5-9 10-15 20 30]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from random import Random
from statistics import geometric_mean, median

import networkx as nx

from services.graph.distance.problem import Mode, Problem
from services.graph.distance.search import Solution, search
from tests.support.graphs import random_script

KINDS = ("revision", "half", "unrelated")
PAIRS = {"5-9": 30, "10-15": 12, "20": 8, "30": 8}


@dataclass(frozen=True)
class Script:
    """A graph over 0, 1, ..., with a label for each event."""

    graph: nx.DiGraph[int]
    labels: list[str]


def draw_pair(kind: str, low: int, high: int, rng: Random) -> tuple[Script, Script]:
    first = random_script(rng.randint(low, high), rng)
    names = [f"a{event}" for event in first]
    if kind == "revision":
        return Script(first, names), revise(first, names, rng)
    second = random_script(rng.randint(low, high), rng)
    shared = rng.sample(names, min(len(names), len(second)) // 2) if kind == "half" else []
    others = [*shared, *(f"b{event}" for event in range(len(second) - len(shared)))]
    rng.shuffle(others)
    return Script(first, names), Script(second, others)


def revise(graph: nx.DiGraph[int], names: list[str], rng: Random) -> Script:
    size = len(graph)
    edges = set(graph.edges)
    labels = list(names)
    for event in rng.sample(range(size), max(1, size // 5)):
        labels[event] = f"x{event}"
    for _ in range(max(1, size // 4)):
        edges.discard(rng.choice(sorted(edges)))
        source, target = sorted(rng.sample(range(size), 2))
        edges.add((source, target))
    places = rng.sample(range(size), size)
    revised: nx.DiGraph[int] = nx.DiGraph()
    revised.add_nodes_from(range(size))
    revised.add_edges_from((places[source], places[target]) for source, target in edges)
    return Script(revised, [labels[places.index(event)] for event in range(size)])


def solve_exactly(first: Script, second: Script, seconds: float) -> tuple[float, Solution]:
    if len(first.graph) > len(second.graph):
        first, second = second, first
    problem = Problem(
        (len(first.graph), len(second.graph)),
        tuple(first.graph.edges),
        tuple(second.graph.edges),
        tuple(tuple(one == other for other in second.labels) for one in first.labels),
        Mode.PROSCRIPT,
    )
    start = time.monotonic()
    *_, solution = search(problem, seconds)
    return time.monotonic() - start, solution


def solve_with_networkx(first: Script, second: Script, seconds: float) -> tuple[float, int | None]:
    for script in (first, second):
        nx.set_node_attributes(script.graph, dict(enumerate(script.labels)), "label")
        ends = {(u, v): script.labels[u] + script.labels[v] for u, v in script.graph.edges}
        nx.set_edge_attributes(script.graph, ends, "ends")
    start = time.monotonic()
    distance = nx.graph_edit_distance(
        first.graph,
        second.graph,
        node_match=lambda a, b: a["label"] == b["label"],
        edge_match=lambda a, b: a["ends"] == b["ends"],
        timeout=seconds,
    )
    taken = time.monotonic() - start
    # networkx does not say whether it was stopped; the time does.
    return min(taken, seconds), int(distance) if distance is not None and taken < seconds else None


def run(kind: str, sizes: str, seconds: float, seed: int) -> None:
    low, _, high = sizes.partition("-")
    rng = Random(f"{seed}/{kind}/{sizes}")
    ours, theirs, proven, ties, finished, equal = [], [], 0, 0, 0, 0
    for _ in range(PAIRS[sizes]):
        first, second = draw_pair(kind, int(low), int(high or low), rng)
        taken, solution = solve_exactly(first, second, seconds)
        ours.append(taken)
        proven += solution.proven
        ties += solution.edits_proven
        taken, distance = solve_with_networkx(first, second, seconds)
        theirs.append(taken)
        if distance is not None:
            finished += 1
            equal += distance == solution.edits.cost
    count = len(ours)
    sign = "" if finished == count else ">"
    total = f"{sign}{sum(theirs) / sum(ours):.1f}x"
    mean = f"{sign}{geometric_mean(b / a for a, b in zip(ours, theirs, strict=True)):.1f}x"
    print(
        f"{sizes:>6} {kind:<10} {count:>5} {proven:>6} {ties:>5} {finished:>8} {equal:>5} "
        f"{median(ours):>8.3f} {max(ours):>7.3f} {median(theirs):>9.3f} {total:>9} {mean:>9}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="the time limit of both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", choices=list(PAIRS), default=list(PAIRS))
    options = parser.parse_args()
    print("events pairs      count proven  ties nx ended equal   median     max nx median  by total  by pair")
    for sizes in options.sizes:
        for kind in KINDS:
            run(kind, sizes, options.seconds, options.seed)


if __name__ == "__main__":
    main()
