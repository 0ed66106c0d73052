"""``dramaturg align``: how measures go with people, and how far annotators agree."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dramaturg.api.alignment.v1 import agreement_pb2, correlation_pb2
from dramaturg.cli.align import report
from dramaturg.cli.align.connection import call_alignment
from dramaturg.cli.align.rows import Rows, add_annotations, add_scores
from dramaturg.cli.platform import output

__all__ = ["app"]

app = typer.Typer(help="Measures how far scores and labels agree with people.", no_args_is_help=True)

_DISTANCES = {
    "nominal": agreement_pb2.LABEL_DISTANCE_NOMINAL,
    "ordinal": agreement_pb2.LABEL_DISTANCE_ORDINAL,
    "interval": agreement_pb2.LABEL_DISTANCE_INTERVAL,
    "masi": agreement_pb2.LABEL_DISTANCE_MASI,
}

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSON Lines, or CSV with a header.")]
Target = Annotated[
    str | None,
    typer.Option(help="Where AlignmentService listens, as HOST:PORT. Without it one is started here."),
]
Resamples = Annotated[int, typer.Option(min=0, max=20_000, help="Bootstrap resamples; 0: no intervals.")]
Level = Annotated[float, typer.Option(min=0.5, max=0.999, help="The level of the intervals.")]
Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="The seed of the resamples.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def scores(
    file: File,
    target: Target = None,
    resamples: Resamples = 2000,
    level: Level = 0.95,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Correlates every numeric column with the column "human".

    Prints Pearson's r, Spearman's rho and Kendall's tau-b with bootstrap intervals, the number of rows that
    they rest on, and for every two columns Williams' test and the difference of their taus.

    Example: dramaturg align scores scores.jsonl --json
    """
    request = correlation_pb2.CorrelateScoresRequest(
        resample_count=resamples, confidence_level=level, seed=seed
    )
    left_out = add_scores(request, Rows.read(file))
    response = call_alignment(target, lambda stub: stub.CorrelateScores(request))
    _tell(left_out)
    if as_json:
        _print_json(request, report.correlations(response), left_out)
    else:
        report.print_correlations(response, output())


@app.command()
def labels(
    file: File,
    distance: Annotated[
        str, typer.Option(help=f"How labels differ, for Krippendorff's alpha: {', '.join(_DISTANCES)}.")
    ] = "nominal",
    group_by: Annotated[
        str, typer.Option(help='The column to measure apart by; by default "criterion" or "group", if there.')
    ] = "",
    target: Target = None,
    resamples: Resamples = 2000,
    level: Level = 0.95,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measures how far annotators agree, from rows with the columns "item", "annotator" and "label".

    A label that is a list is a set; in CSV, with the distance "masi", its parts are separated by "|". An item
    that is labelled by several criteria counts as one item for each.

    Example: dramaturg align labels labels.csv --distance ordinal
    """
    if distance not in _DISTANCES:
        raise typer.BadParameter(f"{distance!r} is none of {', '.join(_DISTANCES)}", param_hint="--distance")
    rows = Rows.read(file)
    request = agreement_pb2.MeasureAgreementRequest(
        distance=_DISTANCES[distance],
        group_tag=group_by or next((name for name in ("criterion", "group") if rows.has(name)), ""),
        resample_count=resamples,
        confidence_level=level,
        seed=seed,
    )
    left_out = add_annotations(request, rows)
    response = call_alignment(target, lambda stub: stub.MeasureAgreement(request))
    _tell(left_out)
    if as_json:
        groups = [report.agreement(group) for group in response.groups]
        _print_json(request, {"distance": distance, "groups": groups}, left_out)
    else:
        report.print_agreement(response, output())


def _tell(left_out: Sequence[str]) -> None:
    for one in left_out:
        Console(stderr=True).print(f"left out: {one}", markup=False, highlight=False)


def _print_json(
    request: correlation_pb2.CorrelateScoresRequest | agreement_pb2.MeasureAgreementRequest,
    figures: Mapping[str, Any],
    left_out: Sequence[str],
) -> None:
    choices = {
        "confidence_level": request.confidence_level,
        "resamples": request.resample_count,
        "seed": request.seed,
    }
    printed = {**choices, **figures, "left_out": list(left_out)}
    sys.stdout.write(json.dumps(printed, ensure_ascii=False, allow_nan=False) + "\n")
