"""The options of ``dramaturg eval`` beside those of every command, and tables of texts as its files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest, RubricCriterion
from dramaturg.cli.evaluation import Job
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import GroupBy, JudgeModels, Judges, ModelsUnderTest
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, printable
from dramaturg.datasets import Format
from dramaturg.formats import texts as table
from dramaturg.formats.rubric import BUILTIN, RubricError, read_rubric, ready_rubrics
from dramaturg.results.quantities import counted

Criteria = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help=f"The rubric: a TOML file, or {BUILTIN}NAME ({', '.join(ready_rubrics())}).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class KindOptions:
    """Options of one kind of rows or of several; absent ones keep the row's value."""

    criteria: Criteria = None
    """The rubric."""
    model: ModelsUnderTest = None
    """The models under test."""
    judge: Judges = None
    """The judges of roles, as ROLE=NAME."""
    judge_model: JudgeModels = None
    """Their models, as [ROLE=]MODEL."""
    group_by: GroupBy = None
    """The tags of further tables."""
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", help="Call no model: only rules, or text metrics of pairs.", rich_help_panel=MORE
        ),
    ] = False
    """Whether no model is called."""
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL,MODEL",
            help="Dialogues: two models to compare; repeatable. all: every pair.",
            rich_help_panel=MORE,
        ),
    ] = None
    """The models whose replies are compared."""
    sweep: Annotated[
        str,
        typer.Option(
            metavar="K,K,...",
            help="Pairs: the number of subjective roles, or several numbers.",
            rich_help_panel=MORE,
        ),
    ] = ""
    """The numbers of subjective roles."""
    shuffle: Annotated[
        int | None,
        typer.Option(
            metavar="SEED",
            min=0,
            help="Pairs: the seed of the presentation order. Default: the order of the row.",
            rich_help_panel=MORE,
        ),
    ] = None
    """The seed of the presentation order of pairs."""

    def check(self, kind: str, used: Collection[str]) -> None:
        """Refuses options that a kind does not have.

        Raises:
            typer.Exit: 2 with a message.
        """
        for field in fields(self):
            if field.name not in used and getattr(self, field.name) not in (None, False, ""):
                option = f"--{field.name.replace('_', '-')}"
                fail(f"{option}: rows of the kind {kind} have no such option")


def rubric_of(source: str | None) -> Sequence[RubricCriterion]:
    """The criteria of a file, or of a ready rubric; none without a source.

    Raises:
        typer.Exit: 2 with a message where the source is no rubric.
    """
    if source is None:
        return ()
    try:
        return read_rubric(source)
    except RubricError as error:
        fail(f"{source}: {error}")
    except OSError as error:
        fail(f"{source}: {error.strerror or error}")


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
        given = {**asdict(self), "model": self.model_column}
        del given["model_column"]
        made: Sequence[Message] | None = None
        try:
            if any(given.values()) or table.has_texts(job.file, job.format):
                conversion = table.read_texts(job.file, job.format, given)
                echo(printable(f"{job.file}: {conversion.describe()}"), err=True)
                if conversion.skipped:
                    _refuse(job.file, conversion)
                made = make(conversion.requests)
        except table.TableError as error:
            fail(f"{job.file}: {error}")
        except OSError as error:
            fail(f"{job.file}: {error.strerror or error}")
        if made is None:
            yield job
            return
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
    fail(f"{file}: {counted(len(skipped), 'invalid row')}; nothing is evaluated")
