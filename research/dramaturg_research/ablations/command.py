"""``dramaturg research ablate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import VerdictFigures
from dramaturg.cli.align.table import MORE_THAN_HALF, Majority, read_labels
from dramaturg.cli.evaluation import RowsJob, default_folder
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.judge_selection import Overrides
from dramaturg.cli.options import JudgeModels, Judges, takes_groups
from dramaturg.cli.output_files import check_writable, write_messages
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.runs.connection import refuse
from dramaturg.cli.summaries import as_json
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import Terminal, echo, tell_next
from dramaturg.client import ServiceError
from dramaturg.datasets.row_file import RowFile
from dramaturg.results.files import RESULTS
from dramaturg.results.groups import BASE, LINE_TAG, VARIANT_TAG
from dramaturg.results.names import ALL
from dramaturg.summaries.labels import AmbiguousLabelsError, HumanLabels, LabelJoin
from dramaturg.tables.model import ABSENT, SHARES, Cell, Column, Table, columns, estimate_cell, figure
from dramaturg_research.ablations.agreement import VariantFigures, criteria_of, describe_agreement
from dramaturg_research.ablations.evaluation import run_variants
from dramaturg_research.ablations.variants import FORMS, NAMES, Variant, parse_variants

app = typer.Typer()


@app.command("ablate")
@takes_groups
def ablate(
    job: RowsJob,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VARIANT",
            help=f"{', '.join(NAMES)}; or {FORMS}; or several joined by +. Repeatable. Default: the names.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="LABELS", help="Human labels. Without them variants are compared with the base."
        ),
    ] = None,
    majority: Majority = MORE_THAN_HALF,
    judge: Judges = None,
    judge_model: JudgeModels = None,
    rows_file: Annotated[
        Path | None,
        typer.Option(
            "--rows",
            metavar="FILE",
            help="Write the rows of all variants, tagged with their variant, for a run; evaluate nothing.",
        ),
    ] = None,
) -> None:
    """Evaluates the same scripts in several variants (ABSEval, Tables 2 and 3, Figures 4 and 7).

    The base is FILE with the judges of its rows, --judge and --judge-model. Calls that variants share are
    made once. DIR/<variant>/results.jsonl gets each variant's results ("dramaturg compare" tests their
    difference).

    LABELS has rows of item (TASK/CANDIDATE), criterion, annotator and label (PASS or FAIL), as CSV or JSON
    Lines, as "dramaturg labels align verdicts" reads them. The figures are then accuracies against people.

    With --rows one durable run evaluates all variants: "dramaturg eval FILE --target HOST:PORT --detach",
    then "dramaturg show RUN --group-by variant".

    Exit codes: 0 fine, 1 samples failed or figures are missing, 2 wrong usage or rows, 130 interrupted.

    For example:

        dramaturg research ablate scripts.jsonl --labels labels.csv

        dramaturg research ablate scripts.jsonl --variant no-gold-answer --variant model:critic=small-model

        dramaturg research ablate scripts.jsonl --variant model:big --variant single-judge+model:big --json
    """
    try:
        base = Overrides.parse(judge or (), judge_model or ())
        variants = parse_variants(variant or (), base)
    except ValueError as error:
        fail(str(error))
    if rows_file is not None:
        _write_rows(job, variants, rows_file)
        return
    if job.target is not None and any(one.prompts for one in variants):
        fail(
            "--variant prompts:... needs services of its own: go without --target, or register a judge that "
            "uses the prompts and name it with judge:ROLE=NAME"
        )
    people = None if labels is None else read_labels(labels, majority, "", job.target)
    for one in [] if people is None else people.left_out:
        echo(f"left out: {one}", err=True)
    folder = job.out or default_folder()
    with checked_rows(job.file, EvaluateScriptsRequest, job.limit, job.format) as (rows, total):
        if people is not None:
            _check_labels(rows, people)
        try:
            figures, missing = run(run_variants(job, variants, rows, folder, people))
        except ServiceError as error:
            refuse(job.target or "the gateway", error)
    places = {one.name: folder / one.folder / RESULTS for one in variants}
    if people is not None and not missing and not any(one.agreement for one in figures):
        missing = "no label is of a candidate of the rows: an item is TASK/CANDIDATE, with the rows' ids"
    if job.as_json:
        summary = {
            "rows": total,
            "criteria": criteria_of(figures),
            "compared_with": BASE if people is None else "labels",
            "labels": None if people is None else len(people.labels),
            "undecided_labels": None if people is None else people.undecided,
            "left_out": [] if people is None else people.left_out,
            "variants": [
                {
                    "variant": one.name,
                    "decided_criteria": one.decided_criteria,
                    "agreement": {name: describe_agreement(group) for name, group in one.agreement.items()},
                    "summary": as_json(one.summary),
                    "results": str(places[one.name]),
                }
                for one in figures
            ],
            "missing_figures": missing,
        }
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        console = output()
        show_variants(console, figures, "the base's" if people is None else "people's labels")
        if missing:
            console.print(f"no figures: {missing}", style="yellow")
        for problem in dict.fromkeys(problem for one in figures for problem in one.summary.problems):
            console.print(f"no figures: {problem}", style="yellow")
        console.print(f"results: {folder}", soft_wrap=True)
    failed = any(one.summary.failed_sample_count or one.summary.problems for one in figures)
    compared = list(places.values())
    tell_next("compare" if len(compared) > 1 else "show", *compared)
    raise typer.Exit(1 if failed or missing else 0)


def _check_labels(rows: RowFile[EvaluateScriptsRequest], people: HumanLabels) -> None:
    """Refuses labels of several candidates before anything is evaluated."""
    join = LabelJoin(people)
    for line, request in rows:
        for candidate in request.candidates:
            join.note(str(line), request.task.id, candidate.id)
    try:
        join.check()
    except AmbiguousLabelsError as error:
        fail(str(error))


def _write_rows(job: RowsJob, variants: Sequence[Variant], file: Path) -> None:
    """Writes the rows of all variants, the base's first."""
    if named := next((one.name for one in variants if one.prompts), None):
        fail(f"--rows: the variant {named} needs services of its own; register a judge that uses the prompts")
    check_writable(file)
    with checked_rows(job.file, EvaluateScriptsRequest, job.limit, job.format) as (rows, total):

        def varied() -> Iterator[EvaluateScriptsRequest]:
            for variant in variants:
                for row in rows:
                    variant.apply(row.request)
                    job.apply(row.request)
                    row.request.tags[VARIANT_TAG] = variant.name
                    row.request.tags[LINE_TAG] = str(row.line)
                    yield row.request

        write_messages(file, varied())
    echo(f"{len(variants)} variants of {total} rows to {file}")


SHORT = {
    "no_missing_steps": "NM",
    "no_redundant_steps": "NR",
    "no_duplicate_steps": "ND",
    "executable": "EX",
    "satisfies_constraints": "SC",
    "completes_goal": "CG",
    "order_correct": "OC",
}
"""The criteria as the paper's tables name them."""


def show_variants(console: Terminal, figures: Sequence[VariantFigures], compared_with: str) -> None:
    """Prints the agreement, the rate of PASS, how many verdicts decide, and the calls.

    Args:
        console: Where to print.
        figures: The variants, the base first.
        compared_with: What the agreement is with.
    """
    criteria = criteria_of(figures)
    if any(one.agreement for one in figures):
        title = f"verdicts equal to {compared_with}, of those that decide"
        heads = ("majority", "kappa", "MSE", "over")
        print_tables(console, _table(title, figures, criteria, _agreement, heads, _overall))
    call_heads = ("samples", "failed", "bought", "from the ledger", "abstained because")
    calls = Table("calls and abstentions", columns("variant", figures=call_heads))
    for one in figures:
        summary = one.summary
        reasons = sorted(summary.abstentions_by_reason.items(), key=lambda reason: (-reason[1], reason[0]))
        counts = (
            summary.sample_count,
            summary.failed_sample_count,
            summary.usage.provider_call_count,
            summary.usage.cache_hit_count,
        )
        calls.add_row(
            one.name, *map(str, counts), ", ".join(f"{count} {reason}" for reason, count in reasons)
        )
    print_tables(
        console,
        _table("PASS, of the verdicts that decide", figures, criteria, _passes),
        _table("verdicts that decide", figures, criteria, _decided),
        calls,
    )


def _table(
    title: str,
    figures: Sequence[VariantFigures],
    criteria: Sequence[str],
    cell: Callable[[VariantFigures, str], Cell],
    heads: Sequence[str] = (),
    cells: Callable[[VariantFigures], Sequence[Cell | str]] = lambda _: (),
) -> Table:
    """A row for each variant, a column for each criterion and for all of them, and those of the heads."""
    names: Sequence[str | Column] = (
        *(SHORT.get(name, name) for name in criteria),
        Column(ALL, interval=SHARES),
        *heads,
    )
    table = Table(title, columns("variant", figures=names))
    for one in figures:
        table.add_row(one.name, *(cell(one, name) for name in [*criteria, ALL]), *cells(one))
    return table


def _overall(figures: VariantFigures) -> Sequence[Cell | str]:
    """The figures beside the agreement of all verdicts; the last is the number of criteria."""
    group = figures.agreement.get(ALL)
    if group is None:
        return (ABSENT,) * 4
    described = describe_agreement(group)
    return (
        estimate_cell(group.majority_baseline),
        *(
            Cell(figure(described[name], 3), described[name])
            for name in ("cohen_kappa", "mean_squared_error")
        ),
        f"{len(figures.decided_criteria)} criteria",
    )


def _agreement(figures: VariantFigures, name: str) -> Cell:
    group = figures.agreement.get(name)
    return Cell(ABSENT) if group is None else estimate_cell(group.accuracy_when_answered)


def _passes(figures: VariantFigures, name: str) -> Cell:
    return estimate_cell(_verdicts(figures, name).pass_rate)


def _decided(figures: VariantFigures, name: str) -> Cell:
    counts = _verdicts(figures, name)
    decided, total = counts.pass_count + counts.fail_count, counts.verdict_count
    return Cell(f"{decided}/{total}", decided, judged=decided, total=total)


def _verdicts(figures: VariantFigures, name: str) -> VerdictFigures:
    return figures.verdicts.get(name, VerdictFigures())
