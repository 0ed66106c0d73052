"""``dramaturg convert``: tables and released formats into rows of an evaluation, one command for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.message import Message

from dramaturg.cli.evaluate.texts import rubric_of
from dramaturg.cli.external_commands import NO_RESEARCH, RESEARCH, ExternalCommand
from dramaturg.cli.lazy_group import LazyGroup
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo
from dramaturg.datasets.json_lines import LineError
from dramaturg.formats import texts as table


def _released(name: str, help: str) -> ExternalCommand:  # noqa: A002
    return ExternalCommand(name, RESEARCH, help, NO_RESEARCH, entry=f"convert.{name}")


class _Commands(LazyGroup):
    members = (
        _released("coscript", "Converts the released CoScript format (JSON array or JSON Lines)."),
        _released("choice75", 'Converts the released format of Choice-75 into rows of the kind "decisions".'),
        _released("simulbench", "Converts the released format of SimulBench."),
        _released(
            "goyal",
            "Converts the human study of Goyal et al. 2022 into pairs of texts, as DRPE does (section 4.1).",
        ),
        _released("proscript", 'Converts the released format of proScript into rows of the kind "graphs".'),
    )


app = typer.Typer(cls=_Commands, no_args_is_help=True, help="Converts released formats and tables into rows.")
app.callback()(lambda: None)


@app.command()
def texts(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A table of texts, CSV or JSON Lines.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file to write, JSON Lines.")],
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="RUBRIC",
            exists=True,
            dir_okay=False,
            help='Write rows of the kind "pairs": every two texts of a task, compared by each criterion.',
        ),
    ] = None,
) -> None:
    """Converts a table of texts, one a row, into rows of the kind "texts".

    The columns are task (or prompt), text and model, and optionally id, topic and reference; all others are
    tags. Rows of the same id and task become the texts of one sample. Invalid rows are named on standard
    error and left out; the exit code is then 1.

    For example:

        dramaturg convert texts answers.csv answers.jsonl

        dramaturg eval answers.jsonl --criteria rubric.toml

        dramaturg convert texts answers.csv pairs.jsonl --pairs rubric.toml
    """
    rubric = rubric_of(pairs)
    try:
        rows = table.read_table(source)
    except OSError as error:
        fail(f"{source}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    except table.TableError as error:
        fail(f"{source}: {error}")
    if not rows:
        fail(f"{source}: there are no rows")
    conversion = table.convert(rows)
    written: Sequence[Message] = conversion.requests
    if rubric:
        try:
            written = [pair for request in conversion.requests for pair in table.pairs(request, rubric)]
        except table.TableError as error:
            fail(f"{pairs}: {error}")
        if not written:
            fail(f"{source}: no task has two texts")
    write_messages(destination, written)
    for skipped in conversion.skipped:
        echo(f"{source}: row {skipped.row}: {skipped.reason}", err=True)
    count = sum(len(request.texts) for request in conversion.requests)
    compared = f" in {len(written)} pairs" if rubric else ""
    echo(
        f"{len(conversion.requests)} tasks with {count} texts{compared} to {destination}; "
        f"{len(conversion.skipped)} rows left out",
        err=True,
    )
    raise typer.Exit(1 if conversion.skipped else 0)
