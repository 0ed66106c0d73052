"""``dramaturg research convert choice75``."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, tell_next
from dramaturg_research.formats.choice75 import (
    ALL,
    DEV,
    PAPER_COUNT,
    TRAIN,
    read_folder,
    select_rows,
)


class SplitName(StrEnum):
    """Which rows are written."""

    DEV = DEV
    TRAIN = TRAIN
    ALL = ALL


def choice75(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The folder of the formats.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file of rows to write.")],
    split: Annotated[SplitName, typer.Option(help="Which rows are written.")] = SplitName.DEV,
    demonstrations: Annotated[
        int | None,
        typer.Option(min=0, max=50, help="Solved examples in each row. Default: 9 for dev, else 0."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
) -> None:
    """Converts the released format of Choice-75 into rows of the kind "decisions".

    Each scenario becomes a row with the tags "source", "format", "split" and "level". Demonstrations are
    drawn for each format from its own train part, evenly over choices and levels; only rows of dev have
    them. Contradictory rows are named on standard error and kept as labelled; invalid rows are named and
    left out, and the exit code is then 1.

    For example:

        dramaturg research convert choice75 choice-75/ dev.jsonl

        dramaturg research convert choice75 choice-75/ all.jsonl --split all
    """
    count = PAPER_COUNT if demonstrations is None and split is SplitName.DEV else demonstrations or 0
    if count and split is not SplitName.DEV:
        fail("--demonstrations are drawn from train and require --split dev")
    try:
        reading = read_folder(source)
    except OSError as error:
        fail(f"{error.filename or source}: {error.strerror or error}")
    except ValueError as error:
        fail(f"{source}: {error}")
    rows = select_rows(reading, split, count, seed)
    write_messages(destination, rows)
    for place, text in reading.doubtful:
        echo(f"{place}: {text}; kept as it is labelled", err=True)
    for place, text in reading.skipped:
        echo(f"{place}: {text}; left out", err=True)
    for name, number in Counter(row.tags["format"] for row in rows).items():
        shown = next(len(row.demonstrations) for row in rows if row.tags["format"] == name)
        echo(f"{name}: {number} decisions with {shown} demonstrations each", err=True)
    echo(f"{len(rows)} decisions to {destination}; {len(reading.skipped)} left out", err=True)
    tell_next("eval", destination)
    raise typer.Exit(1 if reading.skipped else 0)
