"""Files and records of script graphs (JSON, DOT), and of votes on pairs of scripts.

Reads a script graph from a JSON record: of proScript, of predictions made for it, or a ``ScriptGraph``. Known
members, all optional:

- events: ``events``, ``unordered_nodes``, ``nodes``, or beside edges ``steps``; a map from id to text or a
  list of texts, numbered from 0, or from 1 where the edges name the number of events and no 0, or of
  ``{"id", "text", "duration_minutes"}``, where the id may also be named ``number``, and the text ``label``,
  ``name``, ``event`` or ``description``; without them, members named "step3";
- edges: ``gold_edges_for_prediction``, ``edges`` or ``links``, a list of ``"2->4"``, of pairs, or of objects
  with ``source_id`` and ``target_id``, ``source`` and ``target``, ``from`` and ``to``, or ``before`` and
  ``after``;
- ``scenario``, ``events_minutes`` (a map from id to minutes), ``id``.

A list instead of a record is a list of edges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dramaturg.api.graph.v1.graph_service_pb2 import (
    PREFERENCE_BETTER,
    PREFERENCE_EQUAL,
    PREFERENCE_UNDECIDED,
    PREFERENCE_WORSE,
    Comparison,
    Preference,
)
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from dramaturg.datasets.json_lines import LineError, json_document, json_values
from dramaturg.datasets.spreadsheet import read_table


class FileError(ValueError):
    """The file is unreadable or invalid; the message names the file and the record."""


@dataclass(frozen=True)
class Row:
    """One record of a file.

    Attributes:
        id: The record's ``id``; without one, its position in the file, from 1, which is how proScript's
            published predictions number scripts.
        record: The record.
    """

    id: str
    record: Mapping[str, Any]

    def tag(self, name: str) -> str | None:
        """The value of a member as text, ``None`` without a single value. Dots select nested members."""
        value: object = self.record
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return str(value) if isinstance(value, (str, int, float)) else None


def read_rows(path: Path) -> list[Row]:
    """Reads a file whose name ends in ".json" or ".jsonl".

    Raises:
        FileError: The file is unreadable, an element is not an object, or an id repeats.
    """
    rows: dict[str, Row] = {}
    for position, record in enumerate(_records(path), start=1):
        if not isinstance(record, Mapping):
            raise FileError(f"{path}: record {position} is not a JSON object")
        row = Row(str(record.get("id", position)), record)
        if row.id in rows:
            raise FileError(f"{path}: record {position} repeats the id {row.id!r}")
        rows[row.id] = row
    return list(rows.values())


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8.

    Raises:
        FileError: The file is unreadable.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: {error}") from error


def _records(path: Path) -> list[Any]:
    try:
        if path.suffix == ".jsonl":
            return [value for _, value in json_values(path)]
        value = json_document(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except LineError as error:
        raise FileError(str(error)) from error
    return value if isinstance(value, list) else [value]


_EDGE = re.compile(
    r"\s{0,20}(?P<source>[^\s<>=-]{1,200})\s{0,20}(?:-{1,3}>|=>|→)\s{0,20}(?P<target>[^\s<>=-]{1,200})\s{0,20}"
)
_EVENT_MEMBERS = ("events", "unordered_nodes", "nodes")
_EDGE_MEMBERS = ("gold_edges_for_prediction", "edges", "links")
_TEXT_MEMBERS = ("text", "label", "name", "event", "description")
_END_MEMBERS = (("source_id", "target_id"), ("source", "target"), ("from", "to"), ("before", "after"))
_STEP = re.compile(r"(?i)step[ _]?(\d{1,9})")


class RecordError(ValueError):
    """The record is not a script graph; the message names the member."""


@dataclass
class GraphRecord:
    """The content of a record.

    Attributes:
        scenario: The goal of the script.
        events: Texts of the events by id, in order.
        minutes: Typical durations in minutes by event id.
        edges: Pairs of event ids, source and target, in order; duplicates included.
        unread: Members and elements that are not understood, abbreviated.
        named_root: The id of the root event whose text was filled in. proScript's release writes "NONE" and
            reads it as "decided to" plus the scenario.
    """

    scenario: str = ""
    events: dict[str, str] = field(default_factory=dict)
    minutes: dict[str, float] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    named_root: str | None = None

    def message(self, graph_id: str = "") -> ScriptGraph:
        """The graph as a contract message, without duplicate edges."""
        return ScriptGraph(
            id=graph_id,
            scenario=self.scenario,
            events=[
                Event(id=event, text=text, duration_minutes=self.minutes.get(event))
                for event, text in self.events.items()
            ],
            edges=[
                EventEdge(source_id=source, target_id=target) for source, target in dict.fromkeys(self.edges)
            ],
        )


def read_record(record: Mapping[str, Any] | Sequence[Any]) -> GraphRecord:
    """Reads a record.

    Raises:
        RecordError: The record has neither events nor edges, or one of them has the wrong type.
    """
    if not isinstance(record, Mapping):
        record = {"edges": record}
    if not any(name in record for name in (*_EVENT_MEMBERS, *_EDGE_MEMBERS)):
        raise RecordError("has neither events nor edges")
    graph = GraphRecord(scenario=_text(record.get("scenario")))
    steps = ("steps",) if any(name in record for name in _EDGE_MEMBERS) else ()
    for name in (*_EVENT_MEMBERS, *steps):
        if name in record:
            _read_events(graph, name, record[name])
            break
    else:
        named = {key: text for key, text in record.items() if _STEP.fullmatch(key) and isinstance(text, str)}
        _read_events(graph, "events", named)
    _read_minutes(graph, record.get("events_minutes"))
    for name in _EDGE_MEMBERS:
        if name in record:
            _read_edges(graph, name, record[name])
            break
    _count_from_one(graph)
    _name_root(graph, record)
    return graph


def _read_events(graph: GraphRecord, name: str, value: object) -> None:
    if isinstance(value, Mapping):
        graph.events.update((_event_id(str(key)), _text(text)) for key, text in value.items())
        return
    if not isinstance(value, list):
        raise RecordError(f"{name} must be a map or a list")
    for index, element in enumerate(value):
        if isinstance(element, str):
            graph.events[str(index)] = element
        elif isinstance(element, Mapping) and {"id", "number"} & element.keys():
            event = _event_id(element.get("id", element.get("number")))
            graph.events[event] = _text(next((element[key] for key in _TEXT_MEMBERS if key in element), None))
            _read_minutes(graph, {event: element.get("duration_minutes")})
        else:
            graph.unread.append(f"{name}[{index}]: {_abbreviated(element)}")


def _count_from_one(graph: GraphRecord) -> None:
    """Numbers a list of texts from 1 where its edges do: they name the number of events, and no 0."""
    places, ends = list(map(str, range(len(graph.events)))), {end for edge in graph.edges for end in edge}
    counted = {str(number): text for number, text in enumerate(graph.events.values(), start=1)}
    if list(graph.events) == places and ends <= counted.keys() and str(len(places)) in ends:
        graph.events = counted


def _read_minutes(graph: GraphRecord, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        graph.unread.append(f"events_minutes: {_abbreviated(value)}")
        return
    for event, minutes in value.items():
        if minutes is None:
            continue
        if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not 0 <= minutes <= 1e9:
            graph.unread.append(f"minutes of {event}: {_abbreviated(minutes)}")
        elif math.isfinite(minutes):
            graph.minutes[str(event)] = float(minutes)


def _read_edges(graph: GraphRecord, name: str, value: object) -> None:
    if not isinstance(value, list):
        raise RecordError(f"{name} must be a list")
    for index, element in enumerate(value):
        ends = tuple(_ends(element))
        if len(ends) == 2 and all(ends):
            graph.edges.append((ends[0], ends[1]))
        else:
            graph.unread.append(f"{name}[{index}]: {_abbreviated(element)}")


def _ends(element: object) -> Iterator[str]:
    if isinstance(element, str):
        found = _EDGE.fullmatch(element)
        if found:
            yield from (_event_id(found["source"]), _event_id(found["target"]))
    elif isinstance(element, Mapping):
        for source, target in _END_MEMBERS:
            if source in element and target in element:
                yield from (_event_id(element[source]), _event_id(element[target]))
                return
    elif isinstance(element, list):
        yield from map(_event_id, element)


def _event_id(value: object) -> str:
    """An event id; "step4" is read as "4", as in proScript's records."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    numbered = _STEP.fullmatch(text)
    return str(int(numbered[1])) if numbered else text


def _name_root(graph: GraphRecord, record: Mapping[str, Any]) -> None:
    if record.get("context") != "NONE" or not graph.scenario:
        return
    for event, text in graph.events.items():
        if text == "NONE":
            graph.events[event] = f"decided to {graph.scenario}"
            graph.named_root = event
            return


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _abbreviated(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def to_dot(graph: ScriptGraph) -> str:
    """Encodes a graph as a digraph: ``label`` is an event's text, ``minutes`` its duration.

    ``GraphService.ParseGraph`` reads the output.
    """
    lines = ["digraph {", "  node [shape=box, style=rounded];"]
    if graph.scenario:
        lines.append(f"  label={_quoted(graph.scenario)};")
    for event in graph.events:
        attributes = f"label={_quoted(event.text or event.id)}"
        if event.HasField("duration_minutes"):
            attributes += f", minutes={event.duration_minutes!r}"
        lines.append(f"  {_quoted(event.id)} [{attributes}];")
    lines += [f"  {_quoted(edge.source_id)} -> {_quoted(edge.target_id)};" for edge in graph.edges]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


VOTES = {
    "better": PREFERENCE_BETTER,
    "equal": PREFERENCE_EQUAL,
    "worse": PREFERENCE_WORSE,
    "undecided": PREFERENCE_UNDECIDED,
}
"""The words of votes."""


def read_votes(files: Sequence[Path]) -> Sequence[Comparison]:
    """Reads the votes of all files by comparison, in the order of their first votes.

    Args:
        files: CSV with a header, or JSON Lines. A row has the id of a comparison and one ``vote``, or a list
            of ``votes``. An empty vote does not count.

    Raises:
        LineError: A row has no id, or something that is no vote.
        OSError: A file cannot be read.
    """
    comparisons: dict[str, Comparison] = {}
    for file in files:
        for line, row in read_table(file):
            found = str(row.get("id") or "").strip()
            if not found:
                raise LineError(file, line, 'has no "id"')
            comparison = comparisons.setdefault(found, Comparison(id=found))
            comparison.votes.extend(_votes(file, line, row))
    return list(comparisons.values())


def _votes(file: Path, line: int, row: Mapping[str, Any]) -> Iterator[Preference.ValueType]:
    if "votes" not in row and "vote" not in row:
        raise LineError(file, line, 'has neither "vote" nor "votes"')
    votes = row.get("votes", [row.get("vote")])
    if not isinstance(votes, list):
        raise LineError(file, line, '"votes" must be a list')
    for vote in votes:
        word = str(vote or "").strip().casefold()
        if word and word not in VOTES:
            raise LineError(file, line, f"the vote is {word[:50]!r}, none of {', '.join(VOTES)}")
        if word:
            yield VOTES[word]
