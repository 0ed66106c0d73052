"""``dramaturg research scenarios sheet``: the review sheet of written scenarios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult
from dramaturg.authoring.scenario_sheet import sheet_rows, write_sheet
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.files import read_results
from dramaturg.results.scenarios import SCENARIOS

KeepDuplicates = Annotated[
    bool, typer.Option("--keep-duplicates", help="Keep near-duplicates on the sheet, marked.")
]


def sheet(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            exists=True,
            help="A folder of scenarios write, its results.jsonl, or the exported samples of a run.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the sheet.")],
    keep_duplicates: KeepDuplicates = False,
    as_json: AsJson = False,
) -> None:
    """Writes the review sheet of scenarios, e.g. of a run.

    Exit codes: 0 the sheet is written, 2 wrong usage or results.

    For example:

        dramaturg runs results RUN --format samples-jsonl --out scenarios.jsonl

        dramaturg research scenarios sheet scenarios.jsonl --out review
    """
    table, lines, count = write_review_sheet(results, out, duplicates_kept=keep_duplicates)
    if as_json:
        typer.echo(json.dumps({"rows": count, "csv": str(table), "jsonl": str(lines)}, ensure_ascii=False))
    else:
        echo(f"{count} scenarios to {table} and {lines}")
    tell_next("research", "scenarios", "review", table, "--out", "rows.jsonl")


def write_review_sheet(results: Path, out: Path, *, duplicates_kept: bool) -> tuple[Path, Path, int]:
    """Writes the sheet; returns its two files and the number of rows.

    Raises:
        typer.Exit: 2 with a message: the results cannot be read, or the sheet cannot be written.
    """
    try:
        rows = [
            row
            for number, sample in enumerate(read_results(results), start=1)
            if _has_scenarios(sample, results)
            for row in sheet_rows(_named(sample.scenarios, number), duplicates_kept=duplicates_kept)
        ]
        return *write_sheet(out, rows), len(rows)
    except LineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")


def _has_scenarios(sample: RunSample, results: Path) -> bool:
    """Whether a sample has a result, which is one of scenarios."""
    kind = sample.WhichOneof("result")
    if kind not in {None, SCENARIOS.name}:
        fail(f"{results}: has results of {kind}, not of scenarios")
    return kind is not None


def _named(result: ScenariosResult, number: int) -> ScenariosResult:
    """The result of a brief; one without an id has its number."""
    result.id = result.id or str(number)
    return result
