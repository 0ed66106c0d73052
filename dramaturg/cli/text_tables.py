"""Tables of texts as files of commands: their columns, and the requests that their rows become."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest
from dramaturg.cli.evaluation import Job
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, printable
from dramaturg.datasets import Format
from dramaturg.formats import texts as table

_SHOWN = 20
_COLUMN = "COLUMN"

Rows = TypeVar("Rows", bound=Message)


@dataclass(frozen=True)
class TableColumns:
    """The options that name columns of a table of texts."""

    text: Annotated[
        str,
        typer.Option(metavar=_COLUMN, help="The column of texts. Default: text, answer, response or output."),
    ] = ""
    """The column of the texts. Empty: one with a usual name, as all others."""
    task: Annotated[
        str,
        typer.Option(
            metavar=_COLUMN,
            help="The column of tasks. Default: task, prompt, question or input, else there are none.",
            rich_help_panel=MORE,
        ),
    ] = ""
    """The column of what the texts were written for."""
    model_column: Annotated[
        str,
        typer.Option(metavar=_COLUMN, help="The column of the models. Default: model.", rich_help_panel=MORE),
    ] = ""
    """The column of their authors."""
    reference: Annotated[
        str,
        typer.Option(
            metavar=_COLUMN,
            help="The column of good answers. Default: reference or expected.",
            rich_help_panel=MORE,
        ),
    ] = ""
    """The column of good answers."""
    context: Annotated[
        str,
        typer.Option(
            metavar=_COLUMN,
            help="The column of the documents that texts rest on. Default: context, contexts or documents.",
            rich_help_panel=MORE,
        ),
    ] = ""
    """The column of documents."""

    @contextmanager
    def as_requests(
        self,
        job: Job,
        make: Callable[[Sequence[EvaluateTextsRequest]], Sequence[Message]] = lambda requests: requests,
    ) -> Iterator[Job]:
        """The command with a file of requests in place of a table of texts; any other file stays.

        Args:
            job: The command.
            make: Makes the rows of the texts of all tasks.

        Raises:
            typer.Exit: 2 with the rows of the table that are invalid, or where a column does not exist.
        """
        if job.by_reference:
            if any(asdict(self).values()):
                fail("--by-reference: a gateway reads rows and no table of texts; leave out the columns")
            yield job
            return
        if not any(asdict(self).values()) and not table.has_texts(job.file, job.format):
            yield job
            return
        given = {**asdict(self), "model": self.model_column}
        del given["model_column"]
        try:
            conversion = table.read_texts(job.file, job.format, given)
            echo(printable(f"{job.file}: {conversion.describe()}"), err=True)
            if conversion.skipped:
                _refuse(job.file, conversion)
            made = make(conversion.requests)
        except table.TableError as error:
            fail(f"{job.file}: {error}")
        except OSError as error:
            fail(f"{job.file}: {error.strerror or error}")
        with tempfile.TemporaryDirectory() as folder:
            name = "" if job.file == "-" else Path(job.file).name
            file = Path(folder) / f"{name.partition('.')[0] or 'rows'}.jsonl"
            write_messages(file, made)
            named = name if job.name is None else job.name
            yield replace(job, file=str(file), format=Format.JSONL, name=named)


def _refuse(file: str, conversion: table.Conversion) -> None:
    skipped = conversion.skipped
    for row in skipped[:_SHOWN]:
        echo(printable(f"{file}: row {row.row}: {row.reason}"), err=True)
    fail(f"{file}: {len(skipped)} rows are invalid; nothing is evaluated")
