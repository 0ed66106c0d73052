"""``dramaturg align calibration``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dramaturg.api.alignment.v1 import calibration_pb2
from dramaturg.cli.align.columns import Cells
from dramaturg.cli.align.connection import call_alignment
from dramaturg.cli.align.options import (
    AsJson,
    Cluster,
    File,
    GroupBy,
    Level,
    Resamples,
    Seed,
    Target,
    choices,
    print_json,
    tell,
)
from dramaturg.cli.align.report import figures, new_table, print_tables, rests_on, shown
from dramaturg.cli.align.rows import Rows
from dramaturg.cli.platform import output

_FIGURES = (
    "expected_calibration_error",
    "maximum_calibration_error",
    "brier_score",
    "discrimination",
    "accuracy",
    "mean_confidence",
)
_HALVES = ("chosen_accuracy", "held_out_accuracy", "held_out_coverage")


def calibration(
    file: File,
    target_accuracy: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Look for the confidence from which on answers are so accurate."),
    ] = None,
    bins: Annotated[int, typer.Option(min=1, max=100, help="How many bins.")] = 10,
    equal_count: Annotated[
        bool, typer.Option("--equal-count", help="Bins of equally many rows, not of equal width.")
    ] = False,
    group_by: GroupBy = "",
    cluster: Cluster = "",
    target: Target = None,
    resamples: Resamples = 2000,
    level: Level = 0.95,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measures how far confidences can be taken at their word.

    Rows have the column "confidence", from 0 to 1, and "correct" (true or false), or "label" and "predicted".
    An empty cell is an abstention, or no confidence. The threshold is chosen on one half of the rows, drawn
    by the seed, and its accuracy is that on the other.

    Example: dramaturg align calibration verdicts.jsonl --target-accuracy 0.95
    """
    rows = Rows.read(file)
    request = calibration_pb2.MeasureCalibrationRequest(
        group_tag=group_by,
        cluster_tag=cluster,
        bin_count=bins,
        binning=calibration_pb2.BINNING_EQUAL_COUNT if equal_count else calibration_pb2.BINNING_EQUAL_WIDTH,
        target_accuracy=target_accuracy,
        confidence_level=level,
        resample_count=resamples,
        seed=seed,
    )
    if not rows.has("confidence"):
        rows.refuse(0, 'has no column "confidence"')
    for line, row in rows.rows:
        cells = Cells(rows, line, row)
        request.items.add(
            confidence=cells.number("confidence", lowest=0, highest=1),
            correct=_correct(cells),
            tags={name: cells.text(name) for name in (group_by, cluster) if name and cells.text(name)},
        )
    response = call_alignment(target, lambda stub: stub.MeasureCalibration(request))
    unused = sum(not (one.HasField("confidence") and one.HasField("correct")) for one in request.items)
    left_out = [f"{unused} rows without an answer or a confidence"] if unused else []
    tell(left_out)
    if as_json:
        print_json({**choices(request), "groups": [_group(one) for one in response.groups]}, left_out)
    else:
        _print(response, output())


def _correct(cells: Cells) -> bool | None:
    label, predicted = cells.text("label"), cells.text("predicted")
    if label:
        return label == predicted if predicted else None
    return cells.truth("correct")


def _group(group: calibration_pb2.CalibrationGroup) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        "group": group.group,
        **rests_on(group.accuracy),
        **figures(group, _FIGURES),
        "bins": [
            {
                "lower": one.lower,
                "upper": one.upper,
                "mean_confidence": one.mean_confidence,
                "n": one.accuracy.count,
                **figures(one, ("accuracy",)),
            }
            for one in group.bins
        ],
        "threshold": None,
    }
    if group.HasField("threshold"):
        threshold = group.threshold
        found["threshold"] = {
            "target_accuracy": threshold.target_accuracy,
            "threshold": threshold.threshold if threshold.HasField("threshold") else None,
            "n": threshold.held_out_accuracy.count,
            **figures(threshold, _HALVES),
        }
    return found


def _print(response: calibration_pb2.MeasureCalibrationResponse, console: Console) -> None:
    table = new_table("group", "ECE", "largest", "Brier", "discrimination", "accuracy", "confidence", "n")
    bins = new_table("group", "confidence", "mean", "accuracy", "n")
    thresholds = new_table("group", "target", "threshold", "on its half", "on the other", "kept", "n")
    for group in response.groups:
        name = escape(group.group) or "all"
        count = f"{group.accuracy.count}/{group.item_count}"
        table.add_row(name, *(shown(getattr(group, figure)) for figure in _FIGURES), count)
        for one in group.bins:
            span = f"{one.lower:.2f} to {one.upper:.2f}"
            bins.add_row(
                name, span, f"{one.mean_confidence:.3f}", shown(one.accuracy), str(one.accuracy.count)
            )
        if group.HasField("threshold"):
            found = group.threshold
            value = f"{found.threshold:.3f}" if found.HasField("threshold") else "none"
            halves = (shown(getattr(found, figure)) for figure in _HALVES)
            rests = str(found.held_out_accuracy.count)
            thresholds.add_row(name, f"{found.target_accuracy:g}", value, *halves, rests)
    print_tables(console, *(one for one in (table, bins, thresholds) if one.row_count))
