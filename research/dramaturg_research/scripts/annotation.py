"""``dramaturg research scripts sample`` and ``dramaturg research scripts labels``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.cli.output_files import check_writable, write_json_lines
from dramaturg.cli.platform import fail
from dramaturg.cli.tables import counted
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.spreadsheet import read_table, write_table
from dramaturg_research.scripts.annotation_sheet import COLUMNS, draw_scripts, read_labels


def sample(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS.jsonl", help="Results of scripts that eval wrote.")
    ],
    destination: Annotated[Path, typer.Argument(metavar="SHEET.csv", help="The sheet to write.")],
    count: Annotated[int, typer.Option(min=1, help="Number of scripts.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
) -> None:
    """Draws scripts for people to label (ABSEval, section 4.3), as many of each model as possible.

    The sheet shows the task, the script and the gold answer, but neither models nor verdicts. People write
    pass or fail into the columns of the criteria; an empty cell is no label. Give each annotator a copy, then
    read the copies with "dramaturg research scripts labels".

    For example:

        dramaturg research scripts sample out/results.jsonl sheet.csv --count 200 --seed 7
    """
    check_writable(destination)
    try:
        drawn = draw_scripts(results, count, seed)
        write_table(destination, COLUMNS, drawn)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    echo(f"{counted(len(drawn), 'script')} to {destination}", err=True)
    tell_next("research", "scripts", "labels", destination)


def labels(
    sheets: Annotated[
        list[Path], typer.Argument(metavar="SHEET.csv...", help="The completed sheets, one an annotator.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="LABELS.jsonl", help="The labels to write.")],
) -> None:
    """Reads completed sheets into a file of labels. An annotator has the name of the sheet's file.

    "labels align labels" measures the agreement of the annotators, "labels align verdicts" that of
    judges with the majority of the annotators.

    Exit codes: 0 fine, 2 a sheet is invalid; all its problems are listed, and nothing is written.

    For example:

        dramaturg research scripts labels first.csv second.csv -o labels.jsonl

        dramaturg labels align verdicts out/results.jsonl --labels labels.jsonl
    """
    check_writable(out)
    names = [sheet.stem for sheet in sheets]
    if len(set(names)) < len(names):
        fail("two sheets have the same name, which is that of the annotator")
    rows: list[Mapping[str, Any]] = []
    problems: list[str] = []
    for sheet in sheets:
        try:
            found, faults = read_labels(read_table(sheet), sheet.stem)
        except OSError as error:
            fail(f"{sheet}: {error.strerror or error}")
        except LineError as error:
            fail(str(error))
        rows += found
        problems += [f"{sheet}: {fault}" for fault in faults]
    if problems:
        fail(f"{counted(len(problems), 'problem')}\n" + "\n".join(problems))
    if not rows:
        fail("the sheets have no label")
    write_json_lines(out, rows)
    count = sum(len(row["labels"]) for row in rows)
    echo(f"{counted(count, 'label')} of {counted(len(names), 'annotator')} to {out}", err=True)
    tell_next("labels", "align", "labels", out)
