"""Input files of commands: every row is checked before the first one is used."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from google.protobuf.message import Message

from dramaturg.cli.platform import fail
from dramaturg.datasets import Format
from dramaturg.datasets.row_file import RowFile, RowsError, open_rows
from dramaturg.results.quantities import counted

Request = TypeVar("Request", bound=Message)


@contextmanager
def checked_rows(
    source: str,
    request: type[Request],
    limit: int | None = None,
    format: Format | None = None,  # noqa: A002 - the contract's name for it
    filled: Collection[str] = (),
) -> Iterator[tuple[RowFile[Request], int]]:
    """The rows of a file, all of them valid, and how many there are: at least one.

    Args:
        source: As ``open_rows`` has it.
        request: The type of request that each row is.
        limit: Only the first N rows count. None: all.
        format: How the rows are written. None: as the end of the name tells, else JSON Lines.
        filled: Required fields that rows may leave out, because the command fills them.

    Raises:
        typer.Exit: 2 with a message that names every bad row, or says why the file cannot be read.
    """
    with ExitStack() as stack:
        try:
            rows = stack.enter_context(open_rows(source, request, limit, format, filled))
            count = rows.check()
        except (OSError, RowsError) as error:
            refuse(source, error)
        if not count:
            fail(f"{source}: there are no rows")
        yield rows, count


def refuse(source: str | Path, error: OSError | RowsError) -> NoReturn:
    """Ends a command whose rows cannot be used.

    Raises:
        typer.Exit: 2 with a message, always.
    """
    if isinstance(error, OSError):
        fail(f"{source}: {error.strerror or error}")
    fail(f"{source}: {counted(error.count, 'problem')}\n{error}")
