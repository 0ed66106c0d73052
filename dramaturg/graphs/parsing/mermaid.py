"""Reads a Mermaid flowchart: "flowchart TD", then "A[find the recipe] --> B[mix]" and "B --> C & D".

Of a node its text counts, not its shape; of an edge its direction, not its label or line. Statements about
drawing are left out unlisted.
"""

from __future__ import annotations

import re

from dramaturg.graphs.parsing.builder import Builder, RepairKind

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
