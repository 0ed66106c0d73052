"""Writes messages as JSON Lines in one go."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dramaturg.cli.platform import fail


def write_messages(file: Path, messages: Iterable[Message]) -> None:
    """Writes one message a line, in protobuf's JSON; a file that is there is replaced.

    Raises:
        typer.Exit: 2 with a message where the file cannot be written.
    """
    try:
        with file.open("w", encoding="utf-8") as lines:
            for message in messages:
                lines.write(json.dumps(MessageToDict(message), ensure_ascii=False) + "\n")
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
