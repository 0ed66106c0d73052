"""Reads a JSON record or list of edges out of a text."""

from __future__ import annotations

import json

from dramaturg.graphs.records import RecordError, read_record
from services.graph.parsing.building import Builder, RepairKind


def parse_json(text: str, builder: Builder) -> bool:
    """Reads the first JSON object or array of a text, if it is a graph with events or edges.

    Returns:
        Whether it is. Where not, ``builder`` is as it was.
    """
    starts = sorted(position for bracket in "{[" if (position := text.find(bracket)) >= 0)
    for start in starts:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
            record = read_record(value)
        except (RecordError, RecursionError, ValueError):
            continue
        if not record.events and not record.edges:
            continue
        builder.drop(text[:start], 0)
        builder.graph.graph["scenario"] = record.scenario
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
