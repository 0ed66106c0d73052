"""``dramaturg research scenarios review``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer

from dramaturg.api.alignment.v1.accuracy_pb2 import (
    AccuracyGroup,
    Grouping,
    LabelledItem,
    MeasureAccuracyRequest,
)
from dramaturg.api.alignment.v1.agreement_pb2 import (
    AgreementGroup,
    AnnotatedItem,
    Annotation,
    MeasureAgreementRequest,
)
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice, Decision
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.authoring import ANNOTATOR, EDITED
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import output, run
from dramaturg.cli.tables import interval, number, print_tables
from dramaturg.cli.terminal import Terminal, tell_next
from dramaturg.kinds.decisions import choice_name
from dramaturg.results.names import ALL
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.validation import violations
from dramaturg.summaries.estimates import estimate
from dramaturg.tables.model import ABSENT, Cell, Table, columns
from dramaturg_research.completed_sheets import kept_rows, reviewed, status_problems

RESAMPLES = 2000
"""More than 0 asks for the intervals of kappa, which are of the jackknife."""

app = typer.Typer()


@app.command()
def review(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The completed sheet.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="ROWS.jsonl", help="The rows of the kind decisions to write."),
    ],
    target: AlignmentTarget = None,
    as_json: AsJson = False,
) -> None:
    """Converts accepted and edited scenarios into rows of the kind "decisions".

    Prints the agreement of the annotators (Fleiss' kappa, by format) and their accuracy (by level;
    Choice-75, appendices A and D). Rows without a status are counted as not reviewed.

    Exit codes: 0 fine, 1 a figure is missing, 2 the sheet is invalid.

    For example:

        dramaturg research scenarios review out/review.csv --out decisions.jsonl
    """
    found = reviewed(file, read_review)
    write_messages(out, found.requests)
    agreement, accuracy, missing = run(_measure(target, found))
    statuses = dict(sorted(found.statuses.items()))
    levels = dict(Counter(request.tags.get("level", "") for request in found.requests))
    if as_json:
        summary = {
            "statuses": statuses,
            "rows": len(found.requests),
            "levels": levels,
            "agreement": [_describe_agreement(group) for group in agreement],
            "annotators": [_describe_accuracy(group) for group in accuracy],
            "missing_figures": missing,
            "out": str(out),
        }
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        console = output()
        listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
        console.print(f"{listed}; {len(found.requests)} rows to {out}", soft_wrap=True)
        _show(console, agreement, accuracy)
        if missing:
            console.print(f"no figures: {missing}", style="yellow")
    tell_next("eval", out)
    raise typer.Exit(1 if missing else 0)


async def _measure(
    target: str | None, found: Reviewed
) -> tuple[Sequence[AgreementGroup], Sequence[AccuracyGroup], str]:
    agreement: MeasureAgreementRequest = agreement_request(found, RESAMPLES)
    accuracy: MeasureAccuracyRequest = accuracy_request(found)
    if not accuracy.items:
        return (), (), ""
    try:
        async with service_channel("alignment", target) as channel:
            alignment = AlignmentServiceStub(channel)
            agreed = await alignment.MeasureAgreement(agreement)
            measured = await alignment.MeasureAccuracy(accuracy)
    except grpc.aio.AioRpcError as failure:
        return (), (), from_rpc_error(failure).message
    return agreed.groups, measured.groups, ""


def _describe_agreement(group: AgreementGroup) -> Mapping[str, Any]:
    return {
        "format": group.group or ALL,
        "n": group.item_count,
        "fleiss_kappa": estimate(group.fleiss_kappa),
        "undefined": group.fleiss_kappa.undefined,
        "observed_agreement": estimate(group.observed_agreement)["value"],
    }


def _describe_accuracy(group: AccuracyGroup) -> Mapping[str, Any]:
    return {
        "format": group.tags.get("format", ALL),
        "level": group.tags.get("level", ALL),
        "n": group.item_count,
        "correct": group.correct_count,
        "accuracy": estimate(group.accuracy),
    }


def _show(console: Terminal, agreement: Sequence[AgreementGroup], accuracy: Sequence[AccuracyGroup]) -> None:
    if agreement:
        table = Table(
            "", columns("format", figures=("scenarios", "Fleiss' kappa", "95 %", "pairs that agree"))
        )
        for group in agreement:
            described = _describe_agreement(group)
            kappa = described["fleiss_kappa"]
            reason = described["undefined"]
            value = Cell(ABSENT, note=f"undefined: {reason}") if reason else number(kappa["value"], 2)
            observed = number(described["observed_agreement"], 2)
            table.add_row(
                described["format"],
                str(group.item_count),
                value,
                interval(kappa["lower"], kappa["upper"], 2),
                observed,
            )
        print_tables(console, table)
    if accuracy:
        table = Table(
            "", columns("format", "level", figures=("labels", "right", "accuracy of people", "95 %"))
        )
        for one in map(_describe_accuracy, accuracy):
            right = one["accuracy"]
            numbers = (
                str(one["n"]),
                str(one["correct"]),
                number(right["value"], 2),
                interval(right["lower"], right["upper"], 2),
            )
            table.add_row(one["format"], one["level"], *numbers)
        print_tables(console, table)


_LEVELS = ("easy", "medium", "hard")
_CHOICES = {
    "1": decision_pb2.CHOICE_OPTION_1,
    "option-1": decision_pb2.CHOICE_OPTION_1,
    "option 1": decision_pb2.CHOICE_OPTION_1,
    "2": decision_pb2.CHOICE_OPTION_2,
    "option-2": decision_pb2.CHOICE_OPTION_2,
    "option 2": decision_pb2.CHOICE_OPTION_2,
    "either": decision_pb2.CHOICE_EITHER,
}
_EITHER = "either"


@dataclass
class Reviewed:
    """What a sheet holds."""

    requests: list[EvaluateDecisionsRequest] = field(default_factory=list)
    """The scenarios that were accepted or edited, tagged "format" and "level"."""
    labels: list[Mapping[str, str]] = field(default_factory=list)
    """For each of those the annotators' labels, by annotator."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Rows by status."""
    problems: list[str] = field(default_factory=list)
    """The problems, each with its line."""


def read_review(rows: Sequence[tuple[int, Mapping[str, str]]]) -> Reviewed:
    """Reads a sheet.

    The right choice of a row is the value of "gold", else the option that the scenario was written for.
    Where it is either, so is the level; else the level is the value of "level". Annotators may have left
    cells empty.

    Args:
        rows: The rows of the sheet, each with the number of its line.
    """
    found = Reviewed()
    for line, row, status in kept_rows(rows, found.statuses):
        problems = list(_problems(row, status))
        if not problems:
            request = _request(row, status)
            problems = [f"{one.field}: {one.description}" for one in violations(request)]
        if problems:
            found.problems += [f"line {line}: {problem}" for problem in problems]
            continue
        found.requests.append(request)
        found.labels.append(
            {
                name.removeprefix(ANNOTATOR): _label(value)
                for name, value in row.items()
                if name.startswith(ANNOTATOR) and value
            }
        )
    return found


def agreement_request(found: Reviewed, resamples: int) -> MeasureAgreementRequest:
    """The request for the annotators' agreement, over all labelled scenarios and by format."""
    return MeasureAgreementRequest(
        items=[
            AnnotatedItem(
                id=request.decision.id,
                annotations=[Annotation(annotator=name, labels=[label]) for name, label in labels.items()],
                tags={"format": request.tags["format"]},
            )
            for request, labels in zip(found.requests, found.labels, strict=True)
            if labels
        ],
        group_tag="format",
        resample_count=resamples,
    )


def accuracy_request(found: Reviewed) -> MeasureAccuracyRequest:
    """The request for the annotators' accuracy, by format and level (Choice-75, Table 4)."""
    return MeasureAccuracyRequest(
        items=[
            LabelledItem(gold=choice_name(request.gold), predicted=label, tags=request.tags)
            for request, labels in zip(found.requests, found.labels, strict=True)
            for label in labels.values()
        ],
        groupings=[Grouping(tags=["format", "level"]), Grouping(tags=["level"]), Grouping()],
    )


def _problems(row: Mapping[str, str], status: str) -> Iterator[str]:
    yield from status_problems(row, status, ("edited_scenario",))
    gold = row.get("gold") or row.get("target", "")
    if gold.casefold() not in _CHOICES:
        yield f"gold: is {gold!r}, none of 1, 2, either"
    elif gold.casefold() != _EITHER and row.get("level", "").casefold() not in _LEVELS:
        yield f"level: is {row.get('level', '')!r}, none of {', '.join(_LEVELS)}"
    for name, value in row.items():
        if name.startswith(ANNOTATOR) and value and value.casefold() not in _CHOICES:
            yield f"{name}: is {value!r}, none of 1, 2, either"


def _request(row: Mapping[str, str], status: str) -> EvaluateDecisionsRequest:
    gold = _CHOICES[(row.get("gold") or row["target"]).casefold()]
    return EvaluateDecisionsRequest(
        decision=Decision(
            id=row.get("id", ""),
            goal=row.get("goal", ""),
            overall_goal=row.get("overall_goal", ""),
            option_1=row.get("option_1", ""),
            option_2=row.get("option_2", ""),
            scenario=row["edited_scenario"] if status == EDITED else row.get("scenario", ""),
        ),
        gold=Choice.ValueType(gold),
        tags={
            "format": row.get("format", ""),
            "level": _EITHER if gold == decision_pb2.CHOICE_EITHER else row["level"].casefold(),
        },
    )


def _label(text: str) -> str:
    return choice_name(_CHOICES[text.casefold()])
