"""``dramaturg labels align calibration``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import calibration_pb2
from dramaturg.cli.align.options import Cluster, File, GroupBy, Resampled
from dramaturg.cli.align.report import WHOLE, interval_methods, shown
from dramaturg.cli.align.table import Cells, Rows
from dramaturg.cli.cells import interval, number
from dramaturg.cli.option_groups import takes_groups
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.tables.model import Table, columns

_FIGURES = (
    "expected_calibration_error",
    "maximum_calibration_error",
    "brier_score",
    "discrimination",
    "accuracy",
    "mean_confidence",
)
_RECALIBRATED = ("brier_score", "expected_calibration_error")
_HALVES = ("chosen_accuracy", "held_out_accuracy", "held_out_coverage")


@takes_groups
def calibration(
    file: File,
    asked: Resampled,
    target_accuracy: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Find the confidence threshold with this accuracy."),
    ] = None,
    bins: Annotated[int, typer.Option(min=1, max=100, help="Number of bins.")] = 10,
    equal_count: Annotated[
        bool, typer.Option("--equal-count", help="Bins with equal numbers of rows instead of equal width.")
    ] = False,
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Recalibrate by Platt scaling and isotonic regression.")
    ] = False,
    confidence: Annotated[
        str,
        typer.Option(
            metavar="COLUMN", help="The column of confidences; that of repeats is measured_confidence."
        ),
    ] = "confidence",
    group_by: GroupBy = "",
    cluster: Cluster = "",
) -> None:
    """Measures the calibration of confidences.

    Rows have the column of --confidence, from 0 to 1, and "correct" (true or false), or "label" and
    "predicted". An empty cell is an abstention, or no confidence. The threshold is the lowest that is shown
    to reach the accuracy: one half of the rows, drawn by the seed, chooses where to begin, and the other
    tests.
    Recalibrated figures are those of held-out halves; the map for new confidences is printed with --json.

    Example: dramaturg labels align calibration verdicts.jsonl --target-accuracy 0.95
    """
    rows = Rows.read(file)
    request = calibration_pb2.MeasureCalibrationRequest(
        group_tag=group_by,
        cluster_tag=cluster,
        bin_count=bins,
        binning=calibration_pb2.BINNING_EQUAL_COUNT if equal_count else calibration_pb2.BINNING_EQUAL_WIDTH,
        target_accuracy=target_accuracy,
        recalibrate=recalibrate,
        **asked.request,
    )
    rows.require(confidence, option="--confidence")
    if not rows.has("correct"):
        rows.require("label", "predicted")
    rows.require(group_by, option="--group-by")
    rows.require(cluster, option="--cluster")
    for line, row in rows.rows:
        cells = Cells(rows, line, row)
        request.items.add(
            confidence=cells.number(confidence, lowest=0, highest=1),
            correct=_correct(cells),
            tags={name: cells.text(name) for name in (group_by, cluster) if name and cells.text(name)},
        )
    response = asked.call(lambda stub: stub.MeasureCalibration(request))
    unused = sum(not (one.HasField("confidence") and one.HasField("correct")) for one in request.items)
    left_out = [f"{unused} rows without an answer or a confidence"] if unused else []
    asked.show(
        {"groups": [_group(one) for one in response.groups]},
        _tables(response),
        left_out,
        interval_methods(response),
        then=("labels", "align", "estimate", file),
    )


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
    if group.recalibrations:
        found["recalibrations"] = [
            {
                "method": one.method,
                "n": one.brier_score.count,
                **figures(one, _RECALIBRATED),
                "points": [[point.confidence, point.recalibrated] for point in one.points],
            }
            for one in group.recalibrations
        ]
    if group.HasField("threshold"):
        threshold = group.threshold
        found["threshold"] = {
            "target_accuracy": threshold.target_accuracy,
            "threshold": threshold.threshold if threshold.HasField("threshold") else None,
            "n": threshold.held_out_accuracy.count,
            **figures(threshold, _HALVES),
        }
    return found


def _tables(response: calibration_pb2.MeasureCalibrationResponse) -> Sequence[Table]:
    heads = ("ECE", "largest", "Brier", "discrimination", "accuracy", "confidence", "n")
    table = Table("", columns("group", figures=heads))
    bins = Table("", columns("group", "confidence", figures=("mean", "accuracy", "n")))
    thresholds = Table(
        "", columns("group", figures=("target", "threshold", "on its half", "on the other", "kept", "n"))
    )
    maps = Table("", columns("group", "recalibrated by", figures=("Brier, held out", "ECE, held out", "n")))
    for group in response.groups:
        name = group.group or WHOLE
        count = f"{group.accuracy.count}/{group.item_count}"
        table.add_row(name, *(shown(getattr(group, figure)) for figure in _FIGURES), count)
        for one in group.bins:
            span = interval(one.lower, one.upper)
            bins.add_row(
                name, span, number(one.mean_confidence), shown(one.accuracy), str(one.accuracy.count)
            )
        if group.HasField("threshold"):
            found = group.threshold
            value = number(found.threshold) if found.HasField("threshold") else "none"
            halves = (shown(getattr(found, figure)) for figure in _HALVES)
            rests = str(found.held_out_accuracy.count)
            thresholds.add_row(name, f"{found.target_accuracy:g}", value, *halves, rests)
        for part in group.recalibrations:
            after = (shown(getattr(part, figure)) for figure in _RECALIBRATED)
            maps.add_row(name, part.method, *after, str(part.brier_score.count))
    return table, bins, thresholds, maps
