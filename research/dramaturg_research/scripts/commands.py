"""``research scripts``: reviewed tasks, scripts of the models under test, and labels of people (ABSEval)."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult, ScriptsResult
from dramaturg.cli.options import AsJson
from dramaturg.cli.output_files import check_writable, write_json_lines, write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError, json_objects
from dramaturg.datasets.spreadsheet import read_table, write_table
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.quantities import counted
from dramaturg_research.completed_sheets import reviewed
from dramaturg_research.scripts.write import write
from dramaturg_research.tasks.script_task_sheet import read_review

app = typer.Typer(
    no_args_is_help=True,
    help="Reads reviewed tasks, writes scripts with the models under test, and draws scripts to label.",
)


@app.command()
def review(
    file: Annotated[Path, typer.Argument(metavar="SHEET", help="The completed sheet.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="TASKS.jsonl", help="The rows of scripts write to write.")
    ],
    unreviewed: Annotated[
        bool,
        typer.Option(
            "--accept-unreviewed",
            help="Also keep unreviewed tasks whose goal states all their constraints.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Converts accepted and edited tasks into rows of "scripts write".

    Rows without a status are counted as not reviewed. A task that was kept though its goal does not say
    one of its constraints is named on standard error.

    Exit codes: 0 fine, 2 the sheet is invalid.

    For example:

        dramaturg research scripts review out/tasks/review.csv -o tasks.jsonl
    """
    found = reviewed(file, partial(read_review, unreviewed=unreviewed))
    write_messages(out, found.requests)
    for one in found.unworded:
        echo(one, err=True)
    statuses = dict(sorted(found.statuses.items()))
    if as_json:
        summary = {
            "statuses": statuses,
            "rows": len(found.requests),
            "unworded": len(found.unworded),
            "out": str(out),
        }
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
        echo(f"{listed}; {len(found.requests)} tasks to {out}")
    tell_next("research", "scripts", "write", out)


app.command("write")(write)


@app.command()
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


@app.command()
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


MATERIAL = ("task_id", "candidate_id", "goal", "constraints", "script", "gold_answer")
"""The columns that are shown to people. The model and the verdicts of judges are not among them."""
COLUMNS = (*MATERIAL, *ABSEVAL, "remark")
"""The columns: one for each criterion, which people fill with pass or fail, and a remark."""
LABELS = ("pass", "fail")
"""The labels. An empty cell is none."""


def draw_scripts(results: Path, count: int, seed: int) -> Sequence[Mapping[str, str]]:
    """Draws scripts for annotation: as many of each model as possible, in random order.

    Scripts without steps are left out: they fail without a label.

    Args:
        results: The results of scripts that ``eval`` wrote.
        count: The number of scripts.
        seed: The seed of the draw.

    Returns:
        The rows of the sheet, in random order; fewer than ``count`` where there are not as many.

    Raises:
        LineError: A line is no result, a task has no id, or two scripts have the same ids.
        OSError: The file cannot be read.
    """
    chance = random.Random(seed)  # noqa: S311 - which scripts are labelled is no secret
    by_model: defaultdict[str, list[Mapping[str, str]]] = defaultdict(list)
    for model, row in _scripts(results):
        by_model[model].append(row)
    for rows in by_model.values():
        chance.shuffle(rows)
    drawn: list[Mapping[str, str]] = []
    while len(drawn) < count and any(by_model.values()):
        for rows in by_model.values():
            if rows and len(drawn) < count:
                drawn.append(rows.pop())
    chance.shuffle(drawn)
    return drawn


def read_labels(
    rows: Sequence[tuple[int, Mapping[str, Any]]], annotator: str
) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
    """Reads the labels of one annotator.

    Args:
        rows: The rows of a sheet, each with the number of its line.
        annotator: The name of the annotator.

    Returns:
        Labels as ``labels align verdicts`` reads them, a row a script that has any, and the sheet's problems,
        each with its line.
    """
    labelled: list[Mapping[str, Any]] = []
    problems: list[str] = []
    for line, row in rows:
        ids = {name: str(row.get(name) or "").strip() for name in ("task_id", "candidate_id")}
        problems += [f"line {line}: {name}: must not be empty" for name, value in ids.items() if not value]
        labels = {}
        for criterion in ABSEVAL:
            label = str(row.get(criterion) or "").strip().casefold()
            if label and label not in LABELS:
                problems.append(f"line {line}: {criterion}: is {label[:50]!r}, neither pass nor fail")
            elif label:
                labels[criterion] = label
        if labels:
            labelled.append({**ids, "annotator": annotator, "labels": labels})
    return labelled, problems


def _scripts(results: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    seen: set[tuple[str, str]] = set()
    for line, record in json_objects(results):
        try:
            result = ParseDict(record, ScriptsResult())
        except ParseError as error:
            raise LineError(results, line, str(error)) from error
        if not result.task.id:
            raise LineError(results, line, "the task has no id, by which labels are joined")
        for candidate in result.candidates:
            ids = result.task.id, candidate.candidate_id
            if ids in seen:
                raise LineError(results, line, f"{'/'.join(ids)} is the id of an earlier script")
            seen.add(ids)
            if candidate.script.steps:
                yield candidate.model, _row(result, candidate)


def _row(result: ScriptsResult, candidate: CandidateResult) -> Mapping[str, str]:
    return {
        "task_id": result.task.id,
        "candidate_id": candidate.candidate_id,
        "goal": result.task.goal,
        "constraints": "\n".join(result.task.constraints),
        "script": _numbered([step.text for step in candidate.script.steps]),
        "gold_answer": _numbered([step.text for step in result.gold_answer.script.steps]),
    }


def _numbered(steps: Sequence[str]) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
