"""The sheets of proScript for people: orders of shuffled events, votes on pairs of scripts, and revisions.

A reproduction draws the sheets from its runs and reads the completed copies. The keys, which name the author
of each script, are files of their own.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dramaturg.api.evaluation.v1.graphs_pb2 import MeasuredGraph
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import Event, ScriptGraph
from dramaturg.datasets.json_lines import LineError, json_objects
from dramaturg.datasets.spreadsheet import read_table, write_table

if TYPE_CHECKING:
    from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceAsyncStub

HUMAN = "Human"
"""The released scripts, as an approach."""
ORDERS, VOTES, REVISIONS = "orders", "votes", "revisions"
"""The sheets. Every file whose name begins so is read: ``votes.csv``, ``votes-2.csv``."""
ORDERS_KEY, VOTES_KEY, REVISIONS_KEY = "orders-key.csv", "votes-key.csv", "revisions-key.csv"
"""The references of the events of a sheet, or the authors of its scripts."""
PAIR_COUNT, REVISED_COUNT = 150, 250
"""Section 6.3: the pairs of each comparison, and the scenarios of the development part to revise."""
ORDERED_COUNT = 250
"""The scripts whose events people order. The paper states none."""
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
SCRIPT_TAG = "script"
"""The tag of an order of events: the script that several people order."""
Scripts = Mapping[str, Mapping[int, ScriptGraph]]
"""The scripts by approach and index of the scenario. Others are compared with the first approach."""


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
    texts = {event.id: _plain(event) for event in graph.events}
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


def write_orders(out: Path, sheets: Path, references: Mapping[int, ScriptGraph], seed: int) -> None:
    """Writes the sheet of shuffled events and its key, unless the key exists.

    Args:
        out: The folder of the key.
        sheets: The folder of the sheet.
        references: The scripts to draw from, by their place in the data.
        seed: The seed of the scripts and of the order of their events.

    Raises:
        OSError: A file cannot be written.
    """
    if (out / ORDERS_KEY).exists():
        return
    sheets.mkdir(parents=True, exist_ok=True)
    draw = random.Random(f"{ORDERS} {seed}")  # noqa: S311
    key: Rows = []
    lines = []
    for index in draw.sample(list(references), min(ORDERED_COUNT, len(references))):
        events = list(references[index].events)
        draw.shuffle(events)
        key.append({"id": str(index), "events": " ".join(event.id for event in events)})
        scenario = references[index].scenario
        row = {"id": str(index), "scenario": scenario, "steps": _steps(events), "order": ""}
        lines.append(f"{json.dumps(row, ensure_ascii=False)}\n")
    (sheets / f"{ORDERS}.jsonl").write_text("".join(lines), encoding="utf-8")
    write_table(out / ORDERS_KEY, ("id", "events"), key)


def _steps(events: Sequence[Event]) -> str:
    return ";\n".join(f"step{place}: {_plain(event)}" for place, event in enumerate(events))


def _plain(event: Event) -> str:
    return " ".join(event.text.replace(";", ",").split()) or event.id


async def read_orders(
    service: GraphServiceAsyncStub, out: Path, sheets: Path, references: Sequence[ScriptGraph]
) -> Sequence[pb.GraphPair]:
    """The orders of all completed sheets, each with its reference. A row without an order is none.

    Raises:
        LineError: An entry cannot be read.
    """
    key_file = out / ORDERS_KEY
    if not key_file.exists():
        return []
    key = read_key(key_file, "events")
    pairs: list[pb.GraphPair] = []
    for file in completed_sheets(sheets, ORDERS):
        for line, row in json_objects(file):
            found, order = str(row.get("id") or ""), str(row.get("order") or "")
            if not order.strip():
                continue
            if found not in key or int(found) >= len(references):
                raise LineError(file, line, f"the id {found!r} is not in {key_file}")
            reference, ids = references[int(found)], key[found]["events"].split()
            known = {event.id: event for event in reference.events}
            if set(ids) != set(known):
                raise LineError(file, line, f"{key_file} has other events of {found!r} than the data")
            # The steps of the key: those of the sheet may have been edited.
            text = f"{_steps([known[one] for one in ids])};\n{order}"
            parsed = await service.ParseGraph(pb.ParseGraphRequest(text=text, dialect=pb.GRAPH_DIALECT_STEPS))
            if len(parsed.graph.events) != len(ids) or not parsed.graph.edges:
                raise LineError(
                    file, line, '"order" has no edges between these steps, such as step0 -> step1'
                )
            graph = ScriptGraph(scenario=reference.scenario, events=reference.events)
            for edge in parsed.graph.edges:
                graph.edges.add(source_id=ids[int(edge.source_id)], target_id=ids[int(edge.target_id)])
            tags = {SCRIPT_TAG: found}
            pairs.append(pb.GraphPair(id=str(len(pairs)), predicted=graph, reference=reference, tags=tags))
    return pairs


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


def completed_sheets(sheets: Path, name: str) -> Sequence[Path]:
    """The files of a sheet."""
    return sorted(sheets.glob(f"{name}*"))


def read_key(file: Path, *columns: str) -> Mapping[str, Mapping[str, str]]:
    """The rows of a key by id.

    Raises:
        LineError: A row has no id, or nothing in one of the columns.
    """
    rows = read_table(file)
    for line, row in rows:
        if missing := [name for name in ("id", *columns) if not row.get(name)]:
            raise LineError(file, line, f'has no "{missing[0]}"')
    return {row["id"]: row for _, row in rows}


async def read_revisions(
    service: GraphServiceAsyncStub, key_file: Path, sheets: Path
) -> AsyncIterator[Revision]:
    """The revisions of all completed sheets. A row without a revised script is none.

    Raises:
        LineError: An entry cannot be read.
    """
    key = read_key(key_file, "approach", "script")
    for file in completed_sheets(sheets, REVISIONS):
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
