"""Reads edges between the texts of events: "find the recipe -> mix the dough;".

An end of an edge is the text of an event, or its name as "step3". Events may be declared as in the dialect of
steps; where none are, the texts that edges name are the events, with the text as id. A statement ends at a
semicolon or at the end of its line.
"""

from __future__ import annotations

import re

from dramaturg.graphs.parsing.builder import MAX_ID_LENGTH, Builder, RepairKind
from dramaturg.graphs.parsing.graph import normalise
from dramaturg.graphs.parsing.steps import ARROW, COMMENT, EVENT_HEAD

_ARROW = re.compile(rf"[ \t]{{0,20}}{ARROW}[ \t]{{0,20}}")
_STATEMENT = re.compile(r"[^;\n]++")
_MARKS = re.compile(r"\A(?:[-*•>][ \t]+|\d{1,4}[.)][ \t]+)?")
_PROSE = re.compile(r"(?i)(?:note|remember|hint|warning)\s?:|(?:do not|don't|never|avoid|no edge|not)\b")
_NOT_STATED = re.compile(
    r"(?i)\b(?:is|are|was|would be|should be)\s+(?:not|un\w+|redundant|wrong|implied|left out|omitted)\b"
    r"|\bisn't\b"
)
"""The words of a statement about an edge that is none."""
_NAME = re.compile(r"(?i)(?:step|event|node)[ \t_]{0,3}(\d{1,9})")


def parse_texts(text: str, builder: Builder) -> bool:
    """Reads all events and edges of a text.

    Returns:
        Whether there is an edge. Where not, ``builder`` is as it was.
    """
    statements = [(found.start(), found[0]) for found in _STATEMENT.finditer(text)]
    chains = [(start, _ends(statement)) for start, statement in statements]
    declared = [
        _declared(statement, ends) for (_, statement), (_, ends) in zip(statements, chains, strict=True)
    ]
    known = {normalise(event[1]): event[0] for event in declared if event}
    edges = [(start, _edge_ids(ends, known)) for start, ends in chains if len(ends) > 1]
    stated = [(start, ids) for start, ids in edges if len(ids) > 1]
    if not stated:
        return False
    (start, ids), *more = stated
    end = text.find("\n", start)
    if not (known or more or len(ids) > 2 or ";" in text[start : end if end >= 0 else len(text)]):
        return False  # A single arrow in prose.
    for (start, statement), event, (_, ends) in zip(statements, declared, chains, strict=True):
        if event:
            builder.event(event[0], builder.clean(event[1], start), start)
        elif len(ends) < 2:
            builder.drop(statement, start)
    for (start, ends), (_, ids) in zip([chain for chain in chains if len(chain[1]) > 1], edges, strict=True):
        if len(ids) != len(ends):
            builder.note(RepairKind.EDGE_INCOMPLETE, " -> ".join(ends), start)
            continue
        builder.reserve(len(ids) - 1)
        for source, target, label, other in zip(ids, ids[1:], ends, ends[1:], strict=False):
            if not known:
                for name, shown in ((source, label), (target, other)):
                    if not builder.graph.has_declared(name):
                        builder.event(name, builder.clean(shown, start), start)
            builder.edge(source, target, start)
    return True


def _ends(statement: str) -> list[str]:
    """Returns the texts between the arrows of a statement; one text where it has no arrow."""
    plain = _MARKS.sub("", statement.strip().strip("`"))
    parts = _ARROW.split(plain)
    is_prose = COMMENT.match(plain) or _PROSE.match(plain) or _NOT_STATED.search(parts[-1])
    if len(parts) > 1 and is_prose:
        return [plain]
    return [part.strip().strip("\"'*`").strip() for part in parts]


def _declared(statement: str, ends: list[str]) -> tuple[str, str] | None:
    head = EVENT_HEAD.match(statement.lstrip()) if len(ends) < 2 else None
    if head is None:
        return None
    number = head["event"] or head["listed"]
    text = statement.lstrip()[head.end() :].strip()
    return (str(int(number)), text) if text else None


def _edge_ids(ends: list[str], known: dict[str, str]) -> list[str]:
    """Returns the ids of the ends of a chain, fewer than the ends where one of them names no event."""
    ids: list[str] = []
    for end in ends:
        name = _NAME.fullmatch(end)
        if known:
            event = known.get(normalise(end)) or (str(int(name[1])) if name else "")
        else:
            event = " ".join(end.split())
        if event and len(event) <= MAX_ID_LENGTH:
            ids.append(event)
    return ids if len(ids) == len(ends) else []
