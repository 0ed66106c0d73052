"""Writes JSON Lines in one go."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dramaturg.cli.platform import fail


def check_writable(*files: Path) -> None:
    """Refuses files that cannot be written, before any call that is paid for.

    Raises:
        typer.Exit: 2 with a message that names the first such file.
    """
    for file in files:
        there = file if file.exists() else file.parent
        if file.is_dir():
            fail(f"{file}: is a folder")
        if not file.parent.is_dir():
            fail(f"{file}: there is no folder {file.parent}")
        if not os.access(there, os.W_OK):
            fail(f"{file}: cannot be written to")


def write_messages(file: Path, messages: Iterable[Message]) -> None:
    """Writes one message a line, in protobuf's JSON; a file that is there is replaced.

    Raises:
        typer.Exit: 2 with a message where the file cannot be written.
    """
    write_json_lines(file, map(MessageToDict, messages))


def write_json_lines(file: Path, values: Iterable[object]) -> None:
    """Writes one JSON value a line; a file that is there is replaced.

    Raises:
        typer.Exit: 2 with a message where the file cannot be written.
    """
    try:
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
