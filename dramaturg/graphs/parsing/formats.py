"""Parsing of graphs in five dialects: steps, DOT, JSON, Mermaid, and edges between texts.

Reasoning between marks is not read. Of several graphs in one text the last one counts: of several code fences
that each hold a whole graph, the last fence; of several digraphs, the last digraph. Dropped text is listed.

Edges that are written as pairs, "(1, 2)", "from 1 to 2" or "| 1 | 2 |", are first rewritten as "1 -> 2", in
lines of pairs alone, beside a label with a colon or an equals sign; pairs in prose stay as they are. The
rewritten text has the length of the text, so that positions keep their meaning.

A Mermaid flowchart is "flowchart TD", then "A[find the recipe] --> B[mix]" and "B --> C & D". Of a node its
text counts, not its shape; of an edge its direction, not its label or line. Statements about drawing are left
out unlisted.

An edge between texts is "find the recipe -> mix the dough;". Its end is the text of an event, or its name as
"step3". Events may be declared as in the dialect of steps; where none are, the texts that edges name are the
events, with the text as id. A statement ends at a semicolon or at the end of its line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum

from dramaturg.graphs.files import RecordError, read_record
from dramaturg.graphs.parsing.builder import (
    ARROW,
    COMMENT,
    DESCRIPTION,
    EVENT_HEAD,
    MAX_ID_LENGTH,
    Builder,
    ReadGraph,
    Repair,
    RepairKind,
    has_numbered_edges,
    normalise,
    parse_steps,
)
from dramaturg.graphs.parsing.dot import HEAD, parse_dot
from dramaturg.judge.reasoning import blanked

_ARROW = re.compile(rf"[ \t]{{0,20}}{ARROW}[ \t]{{0,20}}")
_TEXT_STATEMENT = re.compile(r"[^;\n]++")
_MARKS = re.compile(r"\A(?:[-*•>][ \t]+|\d{1,4}[.)][ \t]+)?")
_PROSE = re.compile(r"(?i)(?:note|remember|hint|warning)\s?:|(?:do not|don't|never|avoid|no edge|not)\b")
_NOT_STATED = re.compile(
    r"(?i)\b(?:is|are|was|would be|should be)\s+(?:not|un\w+|redundant|wrong|implied|left out|omitted)\b"
    r"|\bisn't\b"
)
"""The words of a statement about an edge that is none."""
_NODE_NAME = re.compile(r"(?i)(?:step|event|node)[ \t_]{0,3}(\d{1,9})")
MERMAID_HEAD = re.compile(
    r"^[ \t]{0,20}(?:graph|flowchart)[ \t]{1,20}(?:TD|TB|BT|RL|LR)\b[ \t\r]{0,20}(?:;|$)",
    re.MULTILINE | re.IGNORECASE,
)
"""The first line of a flowchart."""

_DRAWING = re.compile(
    r"(?:subgraph|end|style|classDef|class|linkStyle|click|direction)(?:\s|\Z)|%%", re.IGNORECASE
)
_NODE = re.compile(
    r"\s{0,20}(?P<id>[^\W_][\w.]{0,199}+)"
    r"(?:@\{[^}\n]{0,400}\}|(?P<shape>[\[({>]{1,3})(?P<text>\"[^\"\n]{0,20000}\"|[^\[\](){}\"\n]{0,20000}+)[\])}]{1,3})?"
    r"(?::::?\w{1,100}+)?\s{0,20}"
)
_LINK = re.compile(
    r"(?P<arrow>(?:<?-{2,20}|<?={2,20}|<?-\.{1,20}-)(?:>|&gt;)|-{2}[ \t]{1,4}[^-\n|]{1,200}+-{2,20}(?:>|&gt;)"
    r"|-\.[ \t]{1,4}[^-\n|]{1,200}+\.-(?:>|&gt;)|={2}[ \t]{1,4}[^=\n|]{1,200}+={2,20}(?:>|&gt;))"
    r"|(?P<line>-{3,20}|={3,20}|-\.{1,20}-|~{3,20}|[-=]{2,20}[ox](?=\s))"
)
_LABEL = re.compile(r"\s{0,20}\|[^|\n]{0,400}\|")
_STATEMENT = re.compile(r"[^;\n]++")
_NAME = r"(?:(?:step|event|node)[ \t_]{0,3})?\d{1,9}"
_TEXT = r"\"[^\"\n]{1,500}\"|'[^'\n]{1,500}'"
_PAIR = rf"[(\[]\s{{0,3}}(?:{_NAME}|{_TEXT})\s{{0,3}},\s{{0,3}}(?:{_NAME}|{_TEXT})\s{{0,3}}[)\]]"
_ENDS = re.compile(
    rf"[(\[]\s{{0,3}}({_NAME}|{_TEXT})\s{{0,3}},\s{{0,3}}({_NAME}|{_TEXT})\s{{0,3}}[)\]]", re.IGNORECASE
)
_MARK = r"(?:[-*•][ \t]{1,4}|\d{1,4}[.)][ \t]{1,4})?"
_LINE_OF_PAIRS = re.compile(
    r"^(?P<label>[ \t]{0,20}(?:[*_]{0,2}\w[\w ]{0,30}[*_]{0,2}[ \t]?[:=][*_]{0,2}[ \t]{0,4})?"
    rf"{_MARK})"
    rf"(?P<pairs>[\[({{]?(?:{_PAIR}[ \t]{{0,4}}[,;]?[ \t]{{0,4}}){{1,2000}}[\])}}]?[.,;]?)[ \t]{{0,20}}$",
    re.IGNORECASE | re.MULTILINE,
)
_FROM_TO = re.compile(
    rf"^(?P<label>[ \t]{{0,20}}{_MARK}(?:edge[ \t]{{1,3}})?)"
    rf"from:?[ \t]{{1,4}}(?P<source>{_NAME})(?:,?[ \t]{{1,4}}to:?[ \t]{{1,4}})(?P<target>{_NAME})"
    rf"(?=[ \t]{{0,4}}[.,;]?[ \t]{{0,4}}$)",
    re.IGNORECASE | re.MULTILINE,
)
_TABLE_ROW = re.compile(
    rf"^[ \t]{{0,20}}\|[ \t]{{0,20}}(?P<source>{_NAME})[ \t]{{0,20}}"
    rf"\|[ \t]{{0,20}}(?P<target>{_NAME})[ \t]{{0,20}}\|[ \t]{{0,20}}$",
    re.IGNORECASE | re.MULTILINE,
)
MAX_JSON_STARTS = 16
"""The maximum number of brackets that are tried as the start of a JSON graph."""

_FENCE = re.compile(r"^[ \t]{0,20}(`{3,}|~{3,})[^\n]{0,80}$", re.MULTILINE)
_ANY_ARROW = re.compile(ARROW)
_JSON_START = re.compile(r"[{\[]")


def parse_texts(text: str, builder: Builder) -> bool:
    """Reads all events and edges of a text.

    Returns:
        Whether there is an edge. Where not, ``builder`` is as it was.
    """
    statements = [(found.start(), found[0]) for found in _TEXT_STATEMENT.finditer(text)]
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
        name = _NODE_NAME.fullmatch(end)
        if known:
            event = known.get(normalise(end)) or (str(int(name[1])) if name else "")
        else:
            event = " ".join(end.split())
        if event and len(event) <= MAX_ID_LENGTH:
            ids.append(event)
    return ids if len(ids) == len(ends) else []


def parse_mermaid(text: str, builder: Builder) -> bool:
    """Reads the last flowchart of a text; returns whether there is one."""
    heads = [*MERMAID_HEAD.finditer(text)]
    if not heads:
        return False
    head = heads[-1]
    builder.drop(text[: head.start()], 0)
    end = text.find("```", head.end())
    end = len(text) if end < 0 else end
    for statement in _STATEMENT.finditer(text, head.end(), end):
        start = statement.start() + len(statement[0]) - len(statement[0].lstrip())
        if not _DRAWING.match(text, start, statement.end()):
            _read_statement(text, start, statement.end(), builder)
    _declare_named(builder)
    builder.drop(text[end:], end)
    return True


def _read_statement(text: str, start: int, end: int, builder: Builder) -> None:
    sources: list[str] = []
    directed = True
    at = start
    first = _NODE.match(text, start, end)
    if first and first["text"] is None and first.end() < end and text[first.end()] not in "&-=~<":
        builder.drop(text[start:end], start)  # prose
        return
    while True:
        nodes, at = _read_nodes(text, at, end, builder)
        if not nodes:
            if sources:
                builder.note(RepairKind.EDGE_INCOMPLETE, text[start:end], start)
            else:
                builder.drop(text[at:end], at)
            return
        if sources and directed:
            builder.reserve(len(sources) * len(nodes))
            for source in sources:
                for target in nodes:
                    builder.edge(source, target, start)
        elif sources:
            builder.note(RepairKind.UNDIRECTED_EDGE_DROPPED, f"{sources[0]} -- {nodes[0]}", start)
        link = _LINK.match(text, at, end)
        if link is None:
            builder.drop(text[at:end], at)
            return
        sources, directed = nodes, link["arrow"] is not None
        label = _LABEL.match(text, link.end(), end)
        at = label.end() if label else link.end()


def _read_nodes(text: str, at: int, end: int, builder: Builder) -> tuple[list[str], int]:
    """Reads "A[text] & B"; returns the ids and where they end."""
    nodes: list[str] = []
    while node := _NODE.match(text, at, end):
        event, label = node["id"], node["text"]
        if label is not None:
            shown = builder.clean(label.strip('"'), node.start("text"))
            if not builder.graph.has_declared(event) or builder.graph.events[event].text != shown:
                builder.event(event, shown, node.start())
        elif event not in builder.graph.events:
            builder.mention(event)
        nodes.append(event)
        at = node.end()
        if not text.startswith("&", at) or at >= end:
            break
        at += 1
    return nodes, at


def _declare_named(builder: Builder) -> None:
    """Gives nodes without text their id as text, as Mermaid shows them."""
    for event in [event for event in builder.graph.events if not builder.graph.has_declared(event)]:
        builder.event(event, event, 0)


def with_arrows(text: str) -> str:
    """The text with an arrow in each pair, of the same length."""
    text = _LINE_OF_PAIRS.sub(
        lambda line: line["label"] + _ENDS.sub(_pair, _unwrapped(line["pairs"])) + _padding(line), text
    )
    text = _FROM_TO.sub(
        lambda found: found["label"] + _arrow(found, len(found[0]) - len(found["label"])), text
    )
    return _TABLE_ROW.sub(lambda found: _arrow(found, len(found[0])), text)


def _unwrapped(pairs: str) -> str:
    """Pairs without the brackets of their list: "[(1, 2), (2, 3)]"."""
    if pairs[0] in "[({" and pairs[1:].lstrip()[:1] in "[(":
        end = max(pairs.rfind(mark) for mark in "])}")
        return f" {pairs[1:end]} {pairs[end + 1 :]}"
    return pairs


def _pair(found: re.Match[str]) -> str:
    return f"{found[1]}->{found[2]}".ljust(len(found[0]))


def _arrow(found: re.Match[str], length: int) -> str:
    return f"{found['source']}->{found['target']}".ljust(length)


def _padding(line: re.Match[str]) -> str:
    return " " * (len(line[0]) - len(line["label"]) - len(line["pairs"]))


class Dialect(IntEnum):
    """The dialect of a text, with the numbers of the contract's ``GraphDialect``."""

    STEPS = 1
    DOT = 2
    JSON = 3
    MERMAID = 4
    TEXTS = 5


@dataclass(frozen=True)
class Parsed:
    """The result of parsing.

    Attributes:
        graph: The graph; ``None`` if the text has neither an event nor an edge.
        dialect: The dialect used.
        repairs: The repairs by position; at most ``builder.MAX_REPAIRS``.
        repair_count: The total number of repairs.
    """

    graph: ReadGraph | None
    dialect: Dialect
    repairs: list[Repair]
    repair_count: int


def parse(text: str, dialect: Dialect | None = None) -> Parsed:
    """Parses a graph, in time linear in the text.

    Args:
        text: Any text.
        dialect: The dialect. ``None``: Mermaid if a flowchart starts on a line; DOT if a graph starts
            anywhere (and no step has the form "step0: mix", which models also write inside the braces of a
            graph); JSON if an object or array is a graph; otherwise steps, and edges between texts where the
            steps have no edges.

    Raises:
        TooLargeError: The graph exceeds a limit of ``builder``.
    """
    # Every line ends with "\n". The length, and so every position, stays.
    text = text.replace("\r\n", " \n").replace("\r", "\n")
    shown = blanked(text)
    if shown.startswith("\ufeff"):
        shown = " " + shown[1:]
    start, end = _last_graph(shown, dialect)
    builder = Builder()
    if start or end < len(shown):
        builder.drop(shown[:start], 0)
        builder.drop(shown[end:], end)
    # Spaces before the graph keep positions as they are in the text.
    used = _parse(" " * start + shown[start:end], dialect, builder)
    _list_reasoning(text, shown, builder)
    builder.finish()
    graph = builder.graph if builder.graph.events else None
    return Parsed(graph, used, builder.repairs, builder.repair_count)


def _parse(text: str, dialect: Dialect | None, builder: Builder) -> Dialect:
    dialect = dialect or _recognised(text)
    if dialect is Dialect.STEPS or dialect is None:
        if dialect is None and parse_json(text, builder):
            return Dialect.JSON
        text = with_arrows(text)
        may_be_texts = dialect is None and _ANY_ARROW.search(text) and not has_numbered_edges(text)
        if may_be_texts and parse_texts(text, builder):
            return Dialect.TEXTS
        parse_steps(text, builder)
        return Dialect.STEPS
    parsers = {
        Dialect.DOT: parse_dot,
        Dialect.JSON: parse_json,
        Dialect.MERMAID: parse_mermaid,
        Dialect.TEXTS: parse_texts,
    }
    if not parsers[dialect](text, builder):
        builder.drop(text, 0)
    return dialect


def _recognised(text: str) -> Dialect | None:
    if MERMAID_HEAD.search(text):
        return Dialect.MERMAID
    if HEAD.search(text) and not DESCRIPTION.search(text):
        return Dialect.DOT
    return None


def _last_graph(text: str, dialect: Dialect | None) -> tuple[int, int]:
    """Returns the part of a text that holds the graph: the last code fence with a whole graph, else all."""
    marks = [*_FENCE.finditer(text)]
    blocks = [
        (opening.end(), closing.start()) for opening, closing in zip(marks[::2], marks[1::2], strict=False)
    ]
    whole = [block for block in blocks[-MAX_JSON_STARTS:] if _is_whole(text[slice(*block)], dialect)]
    return whole[-1] if len(whole) > 1 else (0, len(text))


def _is_whole(text: str, dialect: Dialect | None) -> bool:
    """Whether a text is a graph of its own: it declares events, or is one in a dialect with a frame."""
    builder = Builder()
    used = _parse(text, dialect, builder)
    declares = any(map(builder.graph.has_declared, builder.graph.events))
    framed = used in {Dialect.DOT, Dialect.MERMAID, Dialect.JSON}
    return bool(builder.graph.events) and (declares or framed)


def _list_reasoning(text: str, shown: str, builder: Builder) -> None:
    differing = [
        index
        for index, (one, other) in enumerate(zip(text, shown, strict=True))
        if one not in {other, "\ufeff"}
    ]
    if not differing:
        return
    start, end = differing[0], differing[-1] + 1
    builder.note(RepairKind.TEXT_DROPPED, text[start:end], start)


def parse_json(text: str, builder: Builder) -> bool:
    """Reads the first JSON object or array of a text that is a graph with events or edges.

    Returns:
        Whether there is one. Where not, ``builder`` is as it was.
    """
    decoder = json.JSONDecoder()
    position = tried = 0
    while (found := _JSON_START.search(text, position)) and tried < MAX_JSON_STARTS:
        start = found.start()
        position, tried = start + 1, tried + 1
        try:
            value, end = decoder.raw_decode(text, start)
            position = end
            record = read_record(value)
        except (RecordError, RecursionError, ValueError):
            continue
        if not record.events and not record.edges:
            continue
        builder.drop(text[:start], 0)
        builder.graph.scenario = record.scenario
        for event, event_text in record.events.items():
            builder.event(event, builder.clean(event_text, start), start, record.minutes.get(event))
        builder.reserve(len(record.edges))
        for source, target in record.edges:
            builder.edge(source, target, start)
        for unread in record.unread:
            builder.note(RepairKind.TEXT_DROPPED, unread, start)
        if record.named_root is not None:
            builder.note(RepairKind.ROOT_NAMED, record.events[record.named_root], start)
        builder.drop(text[end:], end)
        return True
    return False
