"""``dramaturg labels align estimate``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import prediction_powered_pb2 as pb
from dramaturg.cli.align.options import Asked, Cluster, File
from dramaturg.cli.align.report import interval_methods, shown
from dramaturg.cli.align.table import Cells, Rows
from dramaturg.cli.cells import number
from dramaturg.cli.option_groups import takes_groups
from dramaturg.summaries.estimates import figures
from dramaturg.tables.model import Table, columns

_ESTIMATORS = ("prediction_powered", "labels_alone", "predictions_alone")


@takes_groups
def estimate(
    file: File,
    asked: Asked,
    baseline: Annotated[
        str, typer.Option(metavar="SYSTEM", help="Compare every other system with this one.")
    ] = "",
    cluster: Cluster = "",
) -> None:
    """Estimates the mean that people would give, from few human labels and many verdicts.

    Rows have the column "predicted" (the verdict or score), "label" (the human one; empty where there is
    none), and where there are several systems "item" and "system". Truth values are 1 and 0. The estimate is
    the mean prediction, corrected by the labelled rows (prediction-powered inference); the labelled rows have
    to be a random sample, of which the column "probability" has the inclusion probabilities and "stratum" the
    strata. Without them each row had the same probability.

    Example: dramaturg labels align estimate verdicts.csv --cluster task
    """
    rows = Rows.read(file)
    rows.require("predicted", "label")
    rows.require(cluster, option="--cluster")
    request = pb.EstimateMeansRequest(baseline=baseline, cluster_tag=cluster, confidence_level=asked.level)
    items: dict[str, pb.PredictedItem] = {}
    unused = 0
    for line, row in rows.rows:
        cells = Cells(rows, line, row)
        name, system = cells.text("item") or f"line {line}", cells.text("system") or "all"
        predicted, label = cells.score("predicted"), cells.score("label")
        if predicted is None:
            unused += 1
            continue
        if name not in items:
            items[name] = request.items.add(id=name)
        item = items[name]
        if system in item.predictions:
            rows.refuse(line, f"has item {name!r} of system {system!r} a second time")
        item.predictions[system] = predicted
        if label is not None:
            item.labels[system] = label
            if (probability := cells.score("probability")) is not None:
                item.inclusion_probabilities[system] = probability
        if stratum := cells.text("stratum"):
            item.strata[system] = stratum
        if cluster and cells.text(cluster):
            item.tags[cluster] = cells.text(cluster)
    if not items:
        rows.refuse(0, 'has no row with something in column "predicted"')
    response = asked.call(lambda stub: stub.EstimateMeans(request))
    left_out = [f"{unused} rows without a prediction"] if unused else []
    shown_as = {
        "means": [_describe(one) for one in response.means],
        "differences": [_describe(one) for one in response.differences],
    }
    asked.show(
        shown_as,
        _tables(response),
        left_out,
        interval_methods(response),
        then=("labels", "create", "RUN", "--draw", "active"),
    )


def _describe(one: pb.PredictionPoweredMean) -> Mapping[str, Any]:
    return {
        "system": one.system,
        "labels": one.prediction_powered.count,
        "predictions": one.prediction_powered.total,
        **figures(one, _ESTIMATORS),
        "tuning_parameter": one.tuning_parameter if one.HasField("tuning_parameter") else None,
        "effective_labels": one.effective_labels if one.HasField("effective_labels") else None,
    }


def _tables(response: pb.EstimateMeansResponse) -> Iterable[Table]:
    heads = ("labels and verdicts", "labels alone", "verdicts alone", "labels", "worth", "weight", "of")
    for title, found in (("mean", response.means), ("less the baseline", response.differences)):
        table = Table(title, columns("system", figures=heads))
        for one in found:
            table.add_row(
                one.system,
                *(shown(getattr(one, name)) for name in _ESTIMATORS),
                str(one.prediction_powered.count),
                number(one.effective_labels, 0) if one.HasField("effective_labels") else "",
                number(one.tuning_parameter) if one.HasField("tuning_parameter") else "",
                str(one.prediction_powered.total),
            )
        if found:
            yield table
