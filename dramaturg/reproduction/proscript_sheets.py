"""Sheets of proScript for people: votes on pairs of scripts, and revisions of scripts.

A reproduction draws the sheets from its runs and reads the completed copies: Figures 7 and 8, and Tables 2, 3
and 4. The keys, which name the author of each script, are files of their own.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dramaturg.api.evaluation.v1.graphs_pb2 import GRAPH_TASK_GENERATE, GraphsResult, MeasuredGraph
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.datasets.json_lines import LineError, json_objects
from dramaturg.datasets.spreadsheet import read_table, write_table
from dramaturg.graphs.votes import read_votes
from dramaturg.reproduction.figures import BarChart
from dramaturg.reproduction.paper import DataError, Reproduction
from dramaturg.reproduction.tables import Column, Row, Table, count, number, percent, words
from dramaturg.results.graphs import EDIT_NAMES

if TYPE_CHECKING:
    from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceAsyncStub
    from dramaturg.reproduction.session import Session

HUMAN = "Human"
"""The released scripts, as an approach."""
VOTES, REVISIONS = "votes", "revisions"
"""The sheets. Every file whose name begins so is read: ``votes.csv``, ``votes-2.csv``."""
VOTES_KEY, REVISIONS_KEY = "votes-key.csv", "revisions-key.csv"
"""The authors of the scripts of a sheet."""
PAIR_COUNT, REVISED_COUNT = 150, 250
"""Section 6.3: the pairs of each comparison, and the scenarios of the development part to revise."""
TYPES = (
    "incorrect order",
    "missing event",
    "irrelevant or redundant event",
    "order ambiguity by context",
    "granularity of events",
    "paraphrased event",
    "wrong revision",
)
"""The types of revisions (section 6.3)."""

Scripts = Mapping[str, Mapping[int, ScriptGraph]]
"""The scripts by approach and index of the scenario. Others are compared with the first approach."""

_INVERSE = {pb.PREFERENCE_BETTER: pb.PREFERENCE_WORSE, pb.PREFERENCE_WORSE: pb.PREFERENCE_BETTER}
_DIGITS = 2
_SHARE_DIGITS = 1
# Table 2: distance, V-Del, V-Ins, V-Rep, E-Del, E-Ins, E-Rep by split and model.
TABLE_2 = {
    "dev": {
        "proScript_gen": "4.73 0.426 0.192 0.581 1.558 1.308 0.671",
        "proScript_gen-transfer": "4.79 0.337 0.195 0.679 1.491 1.281 0.775",
        "proScript_gen-pipe": "4.88 0.397 0.159 0.560 1.705 1.407 0.661",
        "Human": "2.78 0.155 0.161 0.144 1.123 1.011 0.199",
    },
    "test": {
        "proScript_gen": "4.97 0.581 0.142 0.656 1.668 1.184 0.709",
        "proScript_gen-transfer": "5.38 0.438 0.213 0.775 1.713 1.402 0.835",
        "proScript_gen-pipe": "5.41 0.594 0.143 0.671 1.880 1.292 0.787",
        "Human": "2.98 0.168 0.149 0.130 1.276 1.074 0.189",
    },
    "test (in domain)": {
        "proScript_gen": "4.57 0.513 0.158 0.633 1.471 1.108 0.687",
        "proScript_gen-transfer": "5.03 0.339 0.299 0.649 1.575 1.496 0.677",
        "proScript_gen-pipe": "5.10 0.561 0.147 0.630 1.765 1.217 0.744",
        "Human": "3.03 0.168 0.211 0.154 1.223 1.091 0.206",
    },
    "test (out domain)": {
        "proScript_gen": "5.43 0.659 0.124 0.681 1.894 1.270 0.735",
        "proScript_gen-transfer": "5.76 0.549 0.115 0.916 1.867 1.296 1.013",
        "proScript_gen-pipe": "5.81 0.659 0.116 0.795 1.961 1.267 0.941",
        "Human": "2.91 0.170 0.074 0.102 1.340 1.054 0.170",
    },
}
"""Table 2 by split and model, as printed."""
# Table 4, in percent, in the order of TYPES.
_TABLE_4 = {
    "proScript": "15.79 5.26 10.53 31.58 31.58 0.00 5.26",
    "Transfer": "21.62 2.70 13.51 32.43 24.32 0.00 5.41",
    "Pipeline": "24.32 2.70 2.70 40.54 21.62 5.41 2.70",
    "Human": "10.00 0.00 0.00 33.33 26.67 6.67 23.33",
}
_BINS = {"0": 0, "1 to 3": 3, "4 to 6": 6, "7 to 9": 9, "10 to 12": 12, "13 and above": None}


class Revision(NamedTuple):
    """A script and its revision by one person."""

    id: str
    approach: str
    written: str
    revised: str
    types: Sequence[str]
    measured: MeasuredGraph
    """The written graph, with its distance to the revised one."""


def steps_text(graph: ScriptGraph) -> str:
    """The events in an order of the script, then the edges, a line each (proScript, Figure 6)."""
    order = {event: place for place, event in enumerate(_ordered(graph))}
    texts = {event.id: " ".join(event.text.replace(";", ",").split()) or event.id for event in graph.events}
    edges = sorted((order[edge.source_id], order[edge.target_id]) for edge in graph.edges)
    lines = [f"step{place}: {texts[event]}" for event, place in order.items()]
    return ";\n".join([*lines, *(f"step{one} -> step{other}" for one, other in edges)])


def _ordered(graph: ScriptGraph) -> Sequence[str]:
    """The ids of the events in a topological order; events on a cycle are last."""
    places = {event.id: place for place, event in enumerate(graph.events)}
    ids = list(places)
    edges = {(edge.source_id, edge.target_id) for edge in graph.edges}
    waiting = Counter(target for _, target in edges)
    ready = [places[one] for one in ids if not waiting[one]]
    heapify(ready)
    found: list[str] = []
    while ready:
        current = ids[heappop(ready)]
        found.append(current)
        for target in sorted(target for source, target in edges if source == current):
            waiting[target] -= 1
            if not waiting[target]:
                heappush(ready, places[target])
    return [*found, *(one for one in ids if one not in set(found))]


def write_sheets(out: Path, sheets: Path, scripts: Scripts, seed: int) -> None:
    """Writes the sheets and their keys. A sheet whose key exists is kept.

    Args:
        out: The folder of the keys.
        sheets: The folder of the sheets.
        scripts: The scripts of all approaches.
        seed: The seed of the scenarios, of the order of rows, and of the script that is first.

    Raises:
        OSError: A file cannot be written.
    """
    sheets.mkdir(parents=True, exist_ok=True)
    if not (out / VOTES_KEY).exists():
        key, rows = _draw_votes(scripts, random.Random(f"{VOTES} {seed}"))  # noqa: S311
        write_table(sheets / f"{VOTES}.csv", ("id", "scenario", "first", "second", "vote"), rows)
        write_table(out / VOTES_KEY, ("id", "first", "second"), key)
    if not (out / REVISIONS_KEY).exists():
        key, rows = _draw_revisions(scripts, random.Random(f"{REVISIONS} {seed}"))  # noqa: S311
        lines = (json.dumps({**row, "revised": "", "type": ""}, ensure_ascii=False) for row in rows)
        (sheets / f"{REVISIONS}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        write_table(out / REVISIONS_KEY, ("id", "approach", "script"), key)


Rows = list[dict[str, str]]


def _draw_votes(scripts: Scripts, draw: random.Random) -> tuple[Rows, Rows]:
    base, *others = scripts
    pairs = []
    for other in others:
        common = sorted(set(scripts[base]) & set(scripts[other]))
        pairs += [
            (index, (base, other) if draw.random() < 0.5 else (other, base))
            for index in draw.sample(common, min(PAIR_COUNT, len(common)))
        ]
    draw.shuffle(pairs)
    key: Rows = []
    rows: Rows = []
    for place, (index, (first, second)) in enumerate(pairs, start=1):
        key.append({"id": str(place), "first": first, "second": second})
        texts = {"first": steps_text(scripts[first][index]), "second": steps_text(scripts[second][index])}
        rows.append({"id": str(place), "scenario": scripts[base][index].scenario, **texts})
    return key, rows


def _draw_revisions(scripts: Scripts, draw: random.Random) -> tuple[Rows, Rows]:
    common = sorted(set.intersection(*(set(some) for some in scripts.values())))
    chosen = draw.sample(common, min(REVISED_COUNT, len(common)))
    drawn = [(index, approach) for index in chosen for approach in scripts]
    draw.shuffle(drawn)
    key: Rows = []
    rows: Rows = []
    for place, (index, approach) in enumerate(drawn, start=1):
        graph = scripts[approach][index]
        script = steps_text(graph)
        key.append({"id": str(place), "approach": approach, "script": script})
        rows.append({"id": str(place), "scenario": graph.scenario, "script": script})
    return key, rows


async def read_sheets(
    session: Session, service: GraphServiceAsyncStub, out: Path, sheets: Path, made: Reproduction
) -> frozenset[str]:
    """Adds the tables and figures of completed sheets.

    Returns:
        The sheets with an entry.

    Raises:
        DataError: A sheet or a key cannot be read.
    """
    found = set()
    try:
        if (out / VOTES_KEY).exists() and await _add_votes(service, out / VOTES_KEY, sheets, made):
            found.add(VOTES)
        if (out / REVISIONS_KEY).exists():
            revisions = [one async for one in _revisions(service, out / REVISIONS_KEY, sheets)]
            if revisions:
                await _add_revisions(session, revisions, made)
                found.add(REVISIONS)
    except LineError as error:
        raise DataError(str(error)) from error
    return frozenset(found)


def _completed(sheets: Path, name: str) -> Sequence[Path]:
    return sorted(sheets.glob(f"{name}*"))


def _key(file: Path, *columns: str) -> Mapping[str, Mapping[str, str]]:
    rows = read_table(file)
    for line, row in rows:
        if missing := [name for name in ("id", *columns) if not row.get(name)]:
            raise LineError(file, line, f'has no "{missing[0]}"')
    return {row["id"]: row for _, row in rows}


async def _add_votes(
    service: GraphServiceAsyncStub, key_file: Path, sheets: Path, made: Reproduction
) -> bool:
    key = _key(key_file, "first", "second")
    voted = [one for one in read_votes(_completed(sheets, VOTES)) if one.votes]
    for comparison in voted:
        if comparison.id not in key:
            raise DataError(f"{sheets}: the votes name {comparison.id!r}, which is not in {key_file}")
    if not voted:
        return False
    # One approach is part of every pair.
    common = set.intersection(*({row["first"], row["second"]} for row in key.values()))
    base = next(iter(sorted(common, key=lambda name: (name == HUMAN, name))), None)
    if base is None:
        raise DataError(f"{key_file}: no approach is part of every pair")
    groups: dict[str, list[pb.Comparison]] = {}
    for comparison in voted:
        row = key[comparison.id]
        other = row["second"] if row["first"] == base else row["first"]
        # Figure 7 counts how often the other script is better.
        votes = comparison.votes if row["first"] == other else [_INVERSE.get(v, v) for v in comparison.votes]
        groups.setdefault(other, []).append(pb.Comparison(id=comparison.id, votes=votes))
    counts: dict[str, pb.PreferenceCounts] = {}
    for other in sorted(groups, key=lambda name: (name == HUMAN, name)):
        request = pb.AggregatePreferencesRequest(comparisons=groups[other])
        counts[other] = (await service.AggregatePreferences(request)).counts
    vote_count = sum(len(one.votes) for one in voted)
    results = ("better", "equal", "worse", "undecided")
    shares = {
        other: [getattr(one, name) / sum(getattr(one, each) for each in results) for name in results]
        for other, one in counts.items()
    }
    title = f"Figure 7: Majorities of votes on pairs with {base}"
    made.tables.append(
        Table(
            "figure-7",
            title,
            [
                Column("Approach"),
                Column("pairs"),
                Column(f"better than {base}"),
                *map(Column, ("equal", "worse", "no majority")),
            ],
            [
                Row(
                    [
                        words(other),
                        count(len(groups[other])),
                        *(percent(one, _SHARE_DIGITS) for one in values),
                    ]
                )
                for other, values in shares.items()
            ],
            notes=[
                f"In percent of pairs. {vote_count} votes on {len(voted)} of {len(key)} pairs.",
                "Pairs without a vote are left out.",
            ],
        )
    )
    made.figures.append(
        BarChart(
            "figure-7",
            title,
            list(shares),
            {name: [100 * values[place] for values in shares.values()] for place, name in enumerate(results)},
            value_name="pairs, in percent",
            limits=(0, 100),
        )
    )
    return True


async def _revisions(service: GraphServiceAsyncStub, key_file: Path, sheets: Path) -> AsyncIterator[Revision]:
    key = _key(key_file, "approach", "script")
    for file in _completed(sheets, REVISIONS):
        for line, row in json_objects(file):
            found, revised = str(row.get("id") or ""), str(row.get("revised") or "")
            types = _types(file, line, row.get("type"))
            if not revised.strip():
                continue
            if found not in key:
                raise LineError(file, line, f"the id {found!r} is not in {key_file}")
            graphs = []
            # The script of the key: that of the sheet may have been edited.
            written = key[found]["script"]
            for text in (written, revised):
                parsed = await service.ParseGraph(pb.ParseGraphRequest(text=text))
                if not parsed.graph.events:
                    raise LineError(file, line, '"revised" has no events')
                graphs.append(parsed.graph)
            distance = await service.MeasureEditDistance(
                pb.MeasureEditDistanceRequest(
                    first=graphs[0], second=graphs[1], mode=pb.DISTANCE_MODE_PROSCRIPT
                )
            )
            approach = key[found]["approach"]
            measured = MeasuredGraph(model=approach, graph=graphs[0], distance=distance)
            yield Revision(found, approach, written, revised, types, measured)


def _types(file: Path, line: int, value: object) -> Sequence[str]:
    """The types of a row: a text, in which commas separate types, or a list of texts."""
    parts = value if isinstance(value, list) else str(value or "").split(",")
    types = [" ".join(str(part).split()).casefold() for part in parts]
    for one in types:
        if one and one not in TYPES:
            raise LineError(file, line, f"the type is {one[:50]!r}, none of {', '.join(TYPES)}")
    return [one for one in types if one]


async def _add_revisions(session: Session, revisions: Sequence[Revision], made: Reproduction) -> None:
    approaches = sorted({one.approach for one in revisions}, key=lambda name: (name == HUMAN, name))
    summary = await session.summarize(
        RunSample(
            index=index,
            sample_id=one.id,
            state=SAMPLE_STATE_SUCCEEDED,
            graphs=GraphsResult(
                task=GRAPH_TASK_GENERATE, reference=one.measured.graph, graphs=[one.measured]
            ),
        )
        for index, one in enumerate(revisions)
    )
    made.tables.append(_distances(summary, revisions, approaches))
    typed = [one for one in revisions if one.types]
    if typed:
        made.tables += [_examples(typed), _distribution(typed, approaches)]
    upper = list(_BINS.values())
    bins = Counter((one.approach, _bin(one.measured.distance.distance, upper)) for one in revisions)
    made.figures.append(
        BarChart(
            "figure-8",
            "Figure 8: Scripts by edit distance to a revision",
            list(_BINS),
            {approach: [bins[approach, place] for place in range(len(upper))] for approach in approaches},
            value_name="revised scripts",
            label_name="edit distance",
            notes=["Each revision of a script counts. The paper prints no values."],
        )
    )


def _bin(distance: int, upper: Sequence[int | None]) -> int:
    return next(place for place, end in enumerate(upper) if end is None or distance <= end)


def _distances(summary: Summary, revisions: Sequence[Revision], approaches: Sequence[str]) -> Table:
    found = {
        figures.model: figures.distances[0]
        for figures in summary.graphs.figures
        if figures.distances and not figures.tags
    }
    rows = [
        Row(
            [
                words(approach),
                count(len({one.id for one in revisions if one.approach == approach})),
                count(found[approach].measured_count),
                number(found[approach].mean, _DIGITS),
                *(number(found[approach].mean_edits[name], 3) for name in EDIT_NAMES),
            ]
        )
        for approach in approaches
    ]
    for name, line in TABLE_2["dev"].items():
        distance, *edits_printed = map(float, line.split())
        cells = [number(distance, _DIGITS), *(number(one, 3) for one in edits_printed)]
        rows.append(
            Row([words(f"{name} (paper)"), words("–"), words("–"), *cells], ruled=name == "proScript_gen")
        )
    proven = sum(one.measured.distance.proven for one in revisions)
    return Table(
        "table-2-revisions",
        "Table 2: Script generation, mean graph edit distance to revisions by people (dev)",
        [
            Column("Models"),
            Column("scripts"),
            Column("revisions"),
            Column("Graph Edit Dist"),
            *map(Column, EDIT_NAMES.values()),
        ],
        rows,
        notes=[
            "Means over revisions. Of two revisers of each script (section 6.3) they are the mean.",
            f"{proven} of {len(revisions)} distances are proven; others are upper bounds.",
        ],
    )


def _examples(typed: Sequence[Revision]) -> Table:
    first = {kind: one for one in reversed(typed) for kind in one.types}
    return Table(
        "table-3",
        "Table 3: Examples for each revision type",
        [Column("Revision types"), Column("generated script"), Column("revised script")],
        [
            Row([words(kind), words(_line(first[kind].written)), words(_line(first[kind].revised))])
            for kind in TYPES
            if kind in first
        ],
        label_count=3,
    )


def _line(text: str) -> str:
    return " ".join(text.split())


def _distribution(typed: Sequence[Revision], approaches: Sequence[str]) -> Table:
    counts = {
        approach: Counter(kind for one in typed if one.approach == approach for kind in one.types)
        for approach in approaches
    }
    printed = {name: line.split() for name, line in _TABLE_4.items()}
    rows = []
    for place, kind in enumerate(TYPES):
        own = [percent(found[kind] / found.total() if found else None, _DIGITS) for found in counts.values()]
        theirs = [number(float(values[place]), _DIGITS) for values in printed.values()]
        rows.append(Row([words(kind), *own, *theirs], ruled=place in {3, 6}))
    totals = ", ".join(f"{approach}: {found.total()}" for approach, found in counts.items())
    return Table(
        "table-4",
        "Table 4: Distribution of revision types",
        [Column("Revision types"), *map(Column, counts), *(Column(name, "paper") for name in printed)],
        rows,
        notes=[
            f"In percent of the types of each approach ({totals}).",
            "Crucial errors, then minor revisions, then wrong revisions.",
        ],
    )
