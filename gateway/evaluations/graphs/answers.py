"""Normalizes predictions to usable edges, under the events' own ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from dramaturg.api.graph.v1.graph_service_pb2 import PairProbability
from dramaturg.api.graph.v1.script_graph_pb2 import EventEdge
from gateway.evaluations.graphs.event_aliases import EventAliases

Kept = TypeVar("Kept")


@dataclass
class Cleaned(Generic[Kept]):
    """A part of an answer."""

    kept: list[Kept] = field(default_factory=list)
    """The usable elements, in the order answered."""
    dropped: list[str] = field(default_factory=list)
    """The dropped elements, as text."""


def clean_edges(edges: Iterable[EventEdge], aliases: EventAliases) -> Cleaned[EventEdge]:
    """The distinct edges between known events.

    An edge from an event to itself is kept: it is a cycle and measured as one.

    Args:
        edges: The edges, between aliases.
        aliases: The aliases.
    """
    cleaned = Cleaned[EventEdge]()
    seen: set[tuple[str, str]] = set()
    for edge in edges:
        ends = _ends(edge, aliases)
        if ends is None:
            cleaned.dropped.append(f"{_called(edge, aliases)}: there is no such event")
        elif ends not in seen:
            seen.add(ends)
            cleaned.kept.append(EventEdge(source_id=ends[0], target_id=ends[1]))
    return cleaned


def clean_probabilities(pairs: Iterable[PairProbability], aliases: EventAliases) -> Cleaned[PairProbability]:
    """The probabilities in [0, 1] of distinct pairs of known events.

    Args:
        pairs: The pairs, of aliases.
        aliases: The aliases.
    """
    cleaned = Cleaned[PairProbability]()
    seen: set[tuple[str, str]] = set()
    for pair in pairs:
        ends = _ends(pair, aliases)
        fault = next(_faults(pair, ends, seen), None)
        if fault is not None or ends is None:
            cleaned.dropped.append(f"{_called(pair, aliases)}: {fault}")
            continue
        seen.add(ends)
        cleaned.kept.append(
            PairProbability(source_id=ends[0], target_id=ends[1], probability=pair.probability)
        )
    return cleaned


class _Directed(Protocol):
    @property
    def source_id(self) -> str: ...

    @property
    def target_id(self) -> str: ...


def _faults(pair: PairProbability, ends: tuple[str, str] | None, seen: set[tuple[str, str]]) -> Iterator[str]:
    if ends is None:
        yield "there is no such event"
    elif ends[0] == ends[1]:
        yield "it is one event"
    elif ends in seen:
        yield "it is repeated"
    # Also false for NaN.
    if not 0 <= pair.probability <= 1:
        yield f"{pair.probability} is no probability"


def _ends(edge: _Directed, aliases: EventAliases) -> tuple[str, str] | None:
    source, target = aliases.id_of(edge.source_id), aliases.id_of(edge.target_id)
    return None if source is None or target is None else (source, target)


def _called(edge: _Directed, aliases: EventAliases) -> str:
    name: Callable[[str], str] = lambda alias: repr(aliases.id_of(alias) or alias[:200])  # noqa: E731
    return f"edge from {name(edge.source_id)} to {name(edge.target_id)}"
