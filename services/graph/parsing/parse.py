"""Reads a graph from text, in whichever dialect it is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from services.graph.model import ScriptGraph
from services.graph.parsing.building import Builder, Repair
from services.graph.parsing.dot import HEAD, parse_dot
from services.graph.parsing.records import parse_json
from services.graph.parsing.steps import DESCRIPTION, parse_steps


class Dialect(IntEnum):
    """How a text is written, with the numbers of the contract's ``GraphDialect``."""

    STEPS = 1
    DOT = 2
    JSON = 3


@dataclass(frozen=True)
class Parsed:
    """What was read.

    Attributes:
        graph: The graph, or ``None`` where the text holds neither an event nor an edge.
        dialect: How it was read.
        repairs: What was dropped or repaired, by position; at most ``building.MAX_REPAIRS``.
        repair_count: How many repairs there were in all.
    """

    graph: ScriptGraph | None
    dialect: Dialect
    repairs: list[Repair]
    repair_count: int


def parse(text: str, dialect: Dialect | None = None) -> Parsed:
    """Reads a graph, in time linear in the text.

    Args:
        text: Anything.
        dialect: How it is written; ``None``: DOT where a graph begins somewhere (and no step is described as
            in "step0: mix", which models also write in the braces of a graph), JSON where an object or array
            is a graph, else steps.

    Raises:
        TooLargeError: The graph passes a limit of ``building``.
    """
    builder = Builder()
    if dialect is Dialect.DOT or (dialect is None and HEAD.search(text) and not DESCRIPTION.search(text)):
        dialect, found = Dialect.DOT, parse_dot(text, builder)
    elif dialect is Dialect.JSON or (dialect is None and parse_json(text, builder)):
        found = parse_json(text, builder) if dialect is Dialect.JSON else True
        dialect = Dialect.JSON
    else:
        dialect, found = Dialect.STEPS, True
        parse_steps(text, builder)
    if not found:
        builder.drop(text, 0)
    builder.finish()
    graph = builder.graph if len(builder.graph) else None
    return Parsed(graph, dialect, builder.repairs, builder.repair_count)
