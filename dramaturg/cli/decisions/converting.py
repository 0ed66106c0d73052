"""``dramaturg convert choice75``."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.cli.decisions.choice75 import DEV, FORMATS, TRAIN, Reading, read_folder
from dramaturg.cli.decisions.demonstrations import PAPER_COUNT, choose_demonstrations
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo
from dramaturg.cli.writing import write_messages


class SplitName(StrEnum):
    """Which rows are written."""

    DEV = DEV
    TRAIN = TRAIN
    ALL = "all"


def choice75(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The folder of the formats.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file of rows to write.")],
    split: Annotated[SplitName, typer.Option(help="Which rows are written.")] = SplitName.DEV,
    demonstrations: Annotated[
        int | None,
        typer.Option(min=0, max=50, help="Solved examples in each row. Default: 9 for dev, else 0."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed by which they are drawn.")] = 0,
) -> None:
    """Converts the released format of Choice-75 into rows of "evaluate decisions".

    Each scenario becomes a row with the tags "format", "split" and "level". Demonstrations are drawn for each
    format from its own train part, as evenly over choices and levels as it has them; they go with no row that
    is not of dev. Rows that contradict themselves are named on standard error and kept as they are labelled;
    rows that do not fit are named and left out, and the exit code is then 1.

    For example:

        dramaturg convert choice75 choice-75/ dev.jsonl

        dramaturg convert choice75 choice-75/ all.jsonl --split all
    """
    count = PAPER_COUNT if demonstrations is None and split is SplitName.DEV else demonstrations or 0
    if count and split is not SplitName.DEV:
        fail("--demonstrations are drawn from train, so they go with --split dev only")
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
    raise typer.Exit(1 if reading.skipped else 0)


def select_rows(reading: Reading, split: SplitName, count: int, seed: int) -> list[EvaluateDecisionsRequest]:
    """The rows of a split, with demonstrations from the train part of the row's own format.

    Args:
        reading: What was read.
        split: Which rows.
        count: How many demonstrations each row gets.
        seed: The seed by which they are drawn.
    """
    train = [row for row in reading.requests if row.tags["split"] == TRAIN]
    shown = {
        name: choose_demonstrations([row for row in train if row.tags["format"] == name], count, seed)
        for name in FORMATS
    }
    rows = [row for row in reading.requests if split is SplitName.ALL or row.tags["split"] == split]
    for row in rows:
        row.demonstrations.extend(shown[row.tags["format"]])
    return rows
