"""Files whose rows are evaluated: the kind of the rows, and the requests that they become."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from google.protobuf.message import Message

from dramaturg.datasets import Format
from dramaturg.datasets.row_file import RowsError, open_rows
from dramaturg.datasets.source import STANDARD_INPUT
from dramaturg.formats import texts as table
from dramaturg.kinds import FILE_KINDS

FILLED: Mapping[str, Sequence[str]] = {"texts": ("criteria",)}
"""Required fields that the settings of a kind may fill, by its name."""
_SHOWN = 20


class FileError(ValueError):
    """A file has no rows that can be evaluated; the message says why.

    Attributes:
        columns: The columns of a table of which none is known to have the texts.
    """

    def __init__(self, message: str, columns: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.columns = columns


def infer_kind(file: str, form: Format | None = None) -> tuple[str, str]:
    """The kind of the rows of a file, and why.

    A table with a text a row has texts, and so has what other tools recorded. Else it is the kind whose
    contract the first row keeps, or the only one that has all fields of the row.

    Args:
        file: A path or an address; "-" is standard input, which can be read again afterwards.
        form: How it is written. None: as the end of the name tells.

    Returns:
        The name of the kind, and by what it was told. Empty for a table or a recording, which
        ``Conversion.describe`` tells.

    Raises:
        FileError: The first row fits no kind, or there is none.
        OSError: The file cannot be read.
    """
    try:
        if table.has_texts(file, form):
            return "texts", ""
        cells = table.first_cells(file, form)
    except table.TableError as error:
        raise FileError(str(error)) from error
    problems = {}
    for name in FILE_KINDS:
        rewind(file)
        try:
            with open_rows(file, request_type(name), 1, form, FILLED.get(name, ())) as rows:
                if rows.check():
                    rewind(file)
                    return name, "by the fields of its first row"
                raise FileError("there are no rows")
        except RowsError as error:
            problems[name] = error
    if all(str(error) == str(problems["scripts"]) for error in problems.values()):
        raise FileError(str(problems["scripts"]))
    near = {name: error for name, error in problems.items() if not _has_another_field(error)} or problems
    if len(near) > 1 and cells and not any("." in name for name in cells):
        raise FileError("its first row is of no kind", list(filter(None, cells)))
    if len(near) > 1:
        reasons = "".join(f"\n  {name}: {str(error).splitlines()[0]}" for name, error in near.items())
        raise FileError(f"its first row is of no kind; name the kind with --kind{reasons}")
    rewind(file)
    return next(iter(near)), "by the fields of its first row"


def request_type(kind: str) -> type[Message]:
    """The request that a row of a kind is."""
    module = import_module(f"dramaturg.api.evaluation.v1.{kind}_pb2")
    name = FILE_KINDS[kind].request or f"Evaluate{kind.capitalize()}Request"
    found: type[Message] = getattr(module, name)
    return found


@dataclass(frozen=True)
class EvaluatedFile:
    """The rows of a file as requests."""

    kind: str
    """The kind, a name of ``FILE_KINDS``."""
    requests: Sequence[Any]
    """A request for each sample."""
    described: str
    """What the file was taken for, as a sentence."""
    names: Sequence[str] = ()
    """The columns of a table of texts."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of each purpose that a table of texts has."""


def read_file(file: str, form: Format | None = None, given: Mapping[str, str] | None = None) -> EvaluatedFile:
    """Reads all rows of a file.

    Args:
        file: A path.
        form: How it is written. None: as the end of the name tells.
        given: The columns of a table of texts by purpose, as ``find_columns`` takes them.

    Raises:
        FileError: It has no rows of a kind, or an invalid one; the message names the first ones.
        OSError: It cannot be read.
    """
    try:
        if not any((given or {}).values()) and not table.has_texts(file, form):
            return _read_rows(file, form)
        conversion = table.read_texts(file, form, given)
    except table.TableError as error:
        raise FileError(str(error)) from error
    if skipped := conversion.skipped:
        listed = "\n".join(f"row {row.row}: {row.reason}" for row in skipped[:_SHOWN])
        raise FileError(f"{len(skipped)} rows are invalid\n{listed}")
    columns = conversion.columns.named
    return EvaluatedFile("texts", conversion.requests, conversion.describe(), conversion.names, columns)


def _read_rows(file: str, form: Format | None) -> EvaluatedFile:
    kind, why = infer_kind(file, form)
    try:
        with open_rows(file, request_type(kind), None, form, FILLED.get(kind, ())) as rows:
            rows.check()
            requests = [row.request for row in rows]
    except RowsError as error:
        raise FileError(str(error)) from error
    return EvaluatedFile(kind, requests, f"{len(requests)} rows of {kind}, {why}")


def _has_another_field(error: RowsError) -> bool:
    """Whether a row has a field that its contract does not have; deeper ones are mistakes."""
    return any(
        "there is no such field" in told and "." not in told.partition(":")[0] for _, told in error.problems
    )


def rewind(file: str) -> None:
    """Has standard input, which is kept, read again from its start; no other file needs it."""
    if file == STANDARD_INPUT:
        sys.stdin.buffer.seek(0)
