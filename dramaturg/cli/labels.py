"""``dramaturg labels``: samples of runs that people label."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_DRAW_UNIFORM,
    LABEL_TASK_UNSPECIFIED,
    LabelDraw,
    LabelFormat,
    LabelSet,
    LabelSheet,
    LabelTask,
)
from dramaturg.cli.lazy_group import LazyCommand, LazyGroup
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail, output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask_gateway
from dramaturg.cli.runs.results import Measures, Models, Outcomes, Reasons, make_filter
from dramaturg.cli.tables import estimated, print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.client import DramaturgClient
from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.spreadsheet import read_table
from dramaturg.results.names import value_name
from dramaturg.summaries.estimates import agreement
from dramaturg.tables.model import Table, columns


class _Commands(LazyGroup):
    members = (
        LazyCommand(
            "align",
            "dramaturg.cli.align",
            "Measures how far scores and labels agree with people.",
            group=True,
        ),
    )


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="Has samples of runs labelled by people, and measures how far judges agree with them.\n\n"
    "Exit codes: 0 fine, 1 the gateway did not answer, 2 wrong usage or refused.",
)

LabelSetId = Annotated[str, typer.Argument(metavar="SET", help="The label set's id.")]


class TaskName(StrEnum):
    """The question to annotators (``evaluation.v1.LabelTask``)."""

    VERDICT = "verdict"
    PREFERENCE = "preference"
    RATING = "rating"
    CHOICE = "choice"
    REVIEW = "review"


class DrawName(StrEnum):
    """How items are drawn (``evaluation.v1.LabelDraw``)."""

    UNIFORM = "uniform"
    STRATIFIED = "stratified"
    ACTIVE = "active"


class SheetName(StrEnum):
    """The contents of an export (``evaluation.v1.LabelSheet``)."""

    LABELS = "labels"
    SCORES = "scores"
    ESTIMATES = "estimates"
    REVIEW = "review"


@app.command("create")
def create(
    run_id: RunId,
    target: RunTarget = DEFAULT_TARGET,
    task: Annotated[TaskName | None, typer.Option(help="The question. Default: by the kind of run.")] = None,
    draw: Annotated[
        DrawName,
        typer.Option(
            help="uniform: each judgement with the same probability. stratified: more of the judge's rare "
            "values. active: more of what the judge is not confident of."
        ),
    ] = DrawName.UNIFORM,
    size: Annotated[int, typer.Option(min=1, max=2000, help="Number of items.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of the draw and the order.")] = 0,
    measures: Measures = None,
    models: Models = None,
    outcomes: Outcomes = None,
    reasons: Reasons = None,
    name: Annotated[str, typer.Option(help="Display name.")] = "",
    as_json: AsJson = False,
) -> None:
    """Draws a random sample of a run's judgements as items to label, and prints the id of the set.

    People label it in the web console, which dramaturg up serves. dramaturg labels align estimate weights
    labels by the probability with which their items were drawn.

    For example:

        dramaturg labels create RUN --draw active --size 200 --seed 7
    """
    wanted = LABEL_TASK_UNSPECIFIED if task is None else LabelTask.Value(f"LABEL_TASK_{task.name}")
    where = make_filter(measures, models, outcomes, reasons)
    made = ask_gateway(
        target,
        lambda client: client.labels.create(
            run_id,
            task=wanted,
            sample_size=size,
            draw=LabelDraw.Value(f"LABEL_DRAW_{draw.name}"),
            seed=seed,
            where=where,
            display_name=name,
        ),
    )
    echo(f"{made.item_count:,} of {made.population_count:,} judgements", err=True)
    typer.echo(json.dumps(_describe(made), ensure_ascii=False) if as_json else made.id)
    tell_next("labels", "show", made.id, "--target", target)


@app.command("list")
def list_sets(
    target: RunTarget = DEFAULT_TARGET,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of sets.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Lists label sets, the newest first."""
    found = ask_gateway(target, lambda client: _find(client, limit))
    if as_json:
        typer.echo(json.dumps({"label_sets": [_describe(one) for one in found]}, ensure_ascii=False))
        return
    texts = ("name", "task", "run", "created")
    table = Table("", columns("set", texts=texts, figures=("items",)), heads=1)
    for one in found:
        shown = _describe(one)
        table.add_row(one.id, *(shown[key] for key in texts), f"{one.item_count:,}")
    print_tables(output(), table)
    tell_next("labels", "show", found[0].id if found else "SET", "--target", target)


@app.command("show")
def show(label_set_id: LabelSetId, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Shows the progress of annotators and their agreement."""
    found = ask_gateway(target, lambda client: client.labels.get(label_set_id))
    if as_json:
        typer.echo(json.dumps(_describe(found), ensure_ascii=False))
        return
    progress = Table("", columns("annotator", figures=("labelled", "of")))
    for one in found.annotators:
        progress.add_row(one.annotator, str(one.labelled_count), str(found.item_count))
    kappas = Table("", columns("items", texts=("annotators",), figures=("labelled twice", "kappa")), heads=1)
    for group in found.agreement:
        for pair in group.pairs:
            names = f"{pair.first_annotator}, {pair.second_annotator}"
            kappa = pair.cohen_kappa
            value = kappa.value if kappa.HasField("value") else None
            kappas.add_row(
                group.group or "all",
                names,
                str(group.item_count),
                estimated(value, None, kappa.undefined),
            )
    print_tables(output(), progress, *([kappas] if found.agreement else []))
    if found.agreement_problem:
        echo(found.agreement_problem, err=True)
    if not found.annotators:
        echo(_NO_LABELS, err=True)
    tell_next("labels", "export", found.id, "labels.csv", "--target", target)


@app.command("write")
def write(
    label_set_id: LabelSetId,
    sheet: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The labels.")],
    annotator: Annotated[str, typer.Option(help="The annotator of rows that name none.")] = "",
    target: RunTarget = DEFAULT_TARGET,
) -> None:
    """Stores labels from rows with the columns position, label and, where there are several, annotator.

    JSON Lines, or CSV with a header. Rows without a label are left out.

    For example:

        dramaturg labels write SET labels.csv --annotator ann
    """
    try:
        rows = read_table(sheet)
    except (LineError, OSError) as error:
        fail(str(error))
    labels: list[tuple[str, int, str]] = []
    for line, row in rows:
        name, position = str(row.get("annotator") or annotator), str(row.get("position", ""))
        if not name or not position.isdecimal():
            fail(f"{sheet}, line {line}: has no {'annotator' if position.isdecimal() else 'position'}")
        if row.get("label"):
            labels.append((name, int(position), str(row["label"])))
    ask_gateway(target, lambda client: _write(client, label_set_id, labels))
    echo(f"{len(labels):,} labels", err=True)
    tell_next("labels", "show", label_set_id, "--target", target)


_NO_LABELS = "there are no labels yet; people write them in the web console"
_ALIGNED = {SheetName.LABELS: "labels", SheetName.SCORES: "scores", SheetName.ESTIMATES: "estimate"}
"""The command of ``labels align`` that reads a sheet."""


@app.command("export")
def export(
    label_set_id: LabelSetId,
    destination: Annotated[Path, typer.Argument(metavar="FILE", help="The file: .csv, else JSON Lines.")],
    sheet: Annotated[
        SheetName,
        typer.Option(
            help="labels: a row for each label, for labels align labels. scores: mean labels beside the "
            "judge's values, for labels align scores. estimates: all judgements with the labels, for labels "
            "align estimate. review: for research scenarios review."
        ),
    ] = SheetName.LABELS,
    target: RunTarget = DEFAULT_TARGET,
) -> None:
    """Writes labels as a sheet that dramaturg labels align or dramaturg research scenarios review reads.

    For example:

        dramaturg labels export SET labels.csv && dramaturg labels align labels labels.csv

        dramaturg labels export SET estimates.csv --sheet estimates

        dramaturg labels align estimate estimates.csv --cluster task
    """
    form = "CSV" if destination.suffix.lower() == ".csv" else "JSONL"
    wanted = LabelSheet.Value(f"LABEL_SHEET_{sheet.name}"), LabelFormat.Value(f"LABEL_FORMAT_{form}")
    content = ask_gateway(target, lambda client: _export(client, label_set_id, *wanted))
    try:
        _check_replaced(destination, content)
        destination.write_bytes(content)
    except OSError as error:
        fail(f"{destination}: {error.strerror or error}")
    if sheet is SheetName.REVIEW:
        tell_next("research", "scenarios", "review", destination, "--out", "rows.jsonl")
    else:
        tell_next("labels", "align", _ALIGNED[sheet], destination)


def _check_replaced(destination: Path, content: bytes) -> None:
    """Refuses to write a sheet without rows, or over a file that is no sheet of the same columns.

    Raises:
        typer.Exit: 1 without rows, 2 where the file has something else.
        OSError: The file cannot be read.
    """
    head, *rows = content.splitlines() or [b""]
    is_csv = destination.suffix.lower() == ".csv"
    if not (rows if is_csv else head):
        fail(_NO_LABELS, code=1)
    if not destination.exists():
        return
    with destination.open("rb") as file:
        before = file.readline().rstrip(b"\r\n")
    if before and (before != head if is_csv else _members(before) != _members(head)):
        fail(f"{destination}: has other columns than the sheet; name another file")


def _members(line: bytes) -> Collection[str] | None:
    """The names of a JSON object. None: it is none."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value.keys() if isinstance(value, dict) else None


@app.command("delete")
def delete(label_set_id: LabelSetId, target: RunTarget = DEFAULT_TARGET) -> None:
    """Deletes a label set with its labels."""
    ask_gateway(target, lambda client: client.labels.delete(label_set_id))
    tell_next("labels", "list", "--target", target)


async def _find(client: DramaturgClient, limit: int) -> Sequence[LabelSet]:
    found: list[LabelSet] = []
    async with aclosing(client.labels.find()) as sets:
        async for one in sets:
            found.append(one)
            if len(found) == limit:
                break
    return found


async def _write(client: DramaturgClient, label_set_id: str, labels: Sequence[tuple[str, int, str]]) -> None:
    for annotator, position, label in labels:
        await client.labels.write(label_set_id, annotator, position, label)


async def _export(
    client: DramaturgClient, label_set_id: str, sheet: LabelSheet.ValueType, form: LabelFormat.ValueType
) -> bytes:
    async with aclosing(client.labels.export(label_set_id, sheet, form)) as pieces:
        return b"".join([piece async for piece in pieces])


def _describe(label_set: LabelSet) -> dict[str, Any]:
    return {
        "id": label_set.id,
        "name": label_set.display_name,
        "run": label_set.run_id,
        "task": value_name(LabelTask, label_set.task).lower(),
        "items": label_set.item_count,
        "population": label_set.population_count,
        "seed": label_set.seed,
        "draw": value_name(LabelDraw, label_set.draw or LABEL_DRAW_UNIFORM).lower(),
        "created": label_set.create_time.ToDatetime().isoformat(timespec="seconds") + "Z",
        "annotators": {one.annotator: one.labelled_count for one in label_set.annotators},
        "agreement": [agreement(group) for group in label_set.agreement],
        "agreement_problem": label_set.agreement_problem,
    }
