"""The scripts that a model is trained and judged on, and how they are split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dramaturg.graphs.files import RecordError, read_record, read_rows
from services.edges.order import MAX_EVENTS, CycleError, Edge, closure, reduction


class ScriptError(ValueError):
    """The record cannot be used for training; the message gives the reason."""


@dataclass(frozen=True)
class Script:
    """A script with a known order. Events are indexed from 0.

    Attributes:
        scenario: The goal of the script.
        events: The text of each event.
        edges: The transitive reduction of the order.
        after: For each event the bit set of all later events.
    """

    scenario: str
    events: tuple[str, ...]
    edges: frozenset[Edge]
    after: tuple[int, ...]

    def precedes(self, first: int, second: int) -> bool:
        """Whether one event comes before another, directly or not."""
        return bool(self.after[first] >> second & 1)


@dataclass(frozen=True)
class ScriptFile:
    """The content of a file of scripts.

    Attributes:
        scripts: The usable scripts, in order.
        skipped: The reason for each skipped record, by id.
        sha256: The SHA-256 of the file, in lower-case hexadecimal.
    """

    scripts: tuple[Script, ...]
    skipped: Mapping[str, str]
    sha256: str


def read_scripts(path: Path) -> ScriptFile:
    """Reads scripts in proScript's format, full or without its root.

    Raises:
        FileError: The file cannot be read.
    """
    scripts: list[Script] = []
    skipped: dict[str, str] = {}
    for row in read_rows(path):
        try:
            scripts.append(read_script(row.record))
        except (RecordError, ScriptError) as problem:
            skipped[row.id] = str(problem)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ScriptFile(tuple(scripts), skipped, digest)


def read_script(record: Mapping[str, Any]) -> Script:
    """Reads one record.

    A full record names its root in ``context``. A record without it lacks the root, which is then added with
    the same text, so that both kinds of records are equal.

    Raises:
        RecordError: The record is not a script graph.
        ScriptError: The graph cannot be used for training.
    """
    graph = read_record(record)
    if not graph.scenario.strip():
        raise ScriptError("has no scenario")
    if graph.unread:
        raise ScriptError(f"has unreadable content: {graph.unread[0]}")
    place = {event: index for index, event in enumerate(graph.events)}
    if unknown := [event for edge in graph.edges for event in edge if event not in place]:
        raise ScriptError(f"has an edge of {unknown[0]!r}, which is not one of its events")
    if blank := [event for event, text in graph.events.items() if not text.strip()]:
        raise ScriptError(f"has no text for event {blank[0]!r}")
    events = list(graph.events.values())
    edges = [(place[source], place[target]) for source, target in graph.edges]
    if "context" not in record:
        edges += [(len(events), source) for source in _sources(len(events), edges)]
        events.append(f"decided to {graph.scenario}")
    if not 2 <= len(events) <= MAX_EVENTS:
        raise ScriptError(f"has {len(events)} events; 2 to {MAX_EVENTS} can be used")
    return make_script(graph.scenario, events, edges)


def make_script(scenario: str, events: Sequence[str], edges: Iterable[Edge]) -> Script:
    """A script of any acyclic edges.

    Raises:
        ScriptError: The edges have a cycle.
    """
    try:
        after = closure(edges, len(events))
    except CycleError as problem:
        raise ScriptError("has a cycle") from problem
    return Script(scenario, tuple(events), reduction(after), after)


def hold_out(scripts: Sequence[Script], share: float, seed: int) -> tuple[list[Script], list[Script]]:
    """Splits scripts into training and held-out scripts.

    Scripts of one scenario stay together, since they resemble each other. The split depends only on the
    wording of scenarios and the seed.

    Args:
        scripts: All scripts.
        share: The minimum share of held-out scripts, in (0, 1).
        seed: Any whole number.

    Returns:
        The training and the held-out scripts, each in the given order.
    """
    groups: dict[str, int] = {}
    for script in scripts:
        groups[_key(script)] = groups.get(_key(script), 0) + 1
    held: set[str] = set()
    count = 0
    for key in sorted(groups, key=lambda key: hashlib.sha256(f"{seed}/{key}".encode()).digest()):
        if count >= share * len(scripts):
            break
        held.add(key)
        count += groups[key]
    return (
        [script for script in scripts if _key(script) not in held],
        [script for script in scripts if _key(script) in held],
    )


def _key(script: Script) -> str:
    return " ".join(script.scenario.casefold().split())


def _sources(size: int, edges: Iterable[Edge]) -> list[int]:
    targets = {target for _, target in edges}
    return [event for event in range(size) if event not in targets]
