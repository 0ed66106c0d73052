"""Converts proScript's files into this project's form: one ``ScriptGraph`` in JSON a line."""

from __future__ import annotations

import json
from pathlib import Path

from google.protobuf.json_format import MessageToDict

from dramaturg.graphs.files import FileError, read_rows
from dramaturg.graphs.records import RecordError, read_record


def convert_proscript(source: Path, destination: Path) -> int:
    """Converts a file of proScript's release, or of predictions for it.

    Each line of ``destination`` holds ``id``, ``scenario``, ``events`` and ``edges``, and as ``tags`` the
    record's other members with a single value, such as a domain.

    Returns:
        How many graphs were written.

    Raises:
        FileError: The source cannot be read, or a record is no graph or has a part that cannot be understood.
            Then nothing is written.
    """
    lines = []
    for row in read_rows(source):
        try:
            record = read_record(row.record)
        except RecordError as error:
            raise FileError(f"{source}: record {row.id}: {error}") from error
        if record.unread:
            raise FileError(f"{source}: record {row.id}: cannot read {record.unread[0]}")
        graph = MessageToDict(record.message(row.id), preserving_proto_field_name=True)
        tags = {
            name: tag for name in row.record if name not in _MEMBERS and (tag := row.tag(name)) is not None
        }
        lines.append(json.dumps({**graph, **({"tags": tags} if tags else {})}, ensure_ascii=False) + "\n")
    destination.write_text("".join(lines), encoding="utf-8")
    return len(lines)


_MEMBERS = frozenset({"id", "scenario", "context"})
