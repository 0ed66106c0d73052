"""``dramaturg labels align calibration``, ``cascade`` and ``estimate``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import calibration_pb2
from dramaturg.api.alignment.v1 import prediction_powered_pb2 as pb
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, Assessment, Verdict
from dramaturg.cli.align.options import (
    WHOLE,
    Asked,
    Cluster,
    File,
    GroupBy,
    Resampled,
    Seed,
    interval_methods,
    shown,
)
from dramaturg.cli.align.table import Cells, Rows
from dramaturg.cli.options import takes_groups
from dramaturg.cli.platform import fail
from dramaturg.cli.tables import interval, number
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.files import read_results
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.tables.cells import percent_of
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


_SAMPLE = "sample"
# Thresholds are rounded up to this precision: a lower one is not shown to hold.
_PLACES = 10**6


@dataclass(frozen=True)
class _Pair:
    """What both stages say about a candidate."""

    sample: int
    first: Assessment
    last: Assessment

    def items(self) -> Iterator[tuple[Verdict, Verdict]]:
        """The verdicts by criterion that the last stage decides."""
        last = {one.criterion: one for one in self.last.verdicts if one.outcome != OUTCOME_ABSTAIN}
        for one in self.first.verdicts:
            if one.criterion in last:
                yield one, last[one.criterion]

    def escalates(self, threshold: float) -> bool:
        """Whether the last stage is asked, with a threshold of the first."""
        confidences = (
            None if one.outcome == OUTCOME_ABSTAIN else _confidence(one) for one, _ in self.items()
        )
        return any(one is None or one < threshold for one in confidences)


def _confidence(verdict: Verdict) -> float | None:
    """The confidence that the repeats of the judge measure, else its own, as in a cascade."""
    if verdict.HasField("measured_confidence"):
        return verdict.measured_confidence
    return verdict.confidence if verdict.HasField("confidence") else None


@takes_groups
def cascade(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            exists=True,
            help="Results with both judges of the role, on everything: a folder, or results.jsonl.",
        ),
    ],
    role: Annotated[str, typer.Option(metavar="ROLE", help="The role of the judges.")],
    first: Annotated[str, typer.Option(metavar="NAME", help="The judge that is asked first.")],
    last: Annotated[str, typer.Option(metavar="NAME", help="The judge that it hands over to.")],
    asked: Asked,
    alpha: Annotated[
        float,
        typer.Option(
            min=0.001, max=0.5, help="Most disagreement with the last judge where the first decides."
        ),
    ] = 0.1,
    seed: Seed = 0,
) -> None:
    """Finds the confidence from which on the verdicts of a first judge stand in a cascade of judges.

    From that confidence on, the first judge disagrees with the last one in at most the share ALPHA of its
    verdicts. The threshold misses that with a probability of at most one less the level (fixed-sequence
    testing: Jung et al. 2024, Trust or Escalate). It is fitted on results in which both judged: a panel of
    both by another rule, or one as the shadow of the other.

    Example: dramaturg labels align cascade out/both --role critic --first small --last large --alpha 0.1
    """
    pairs = _pairs(results, role, first, last)
    request = calibration_pb2.MeasureCalibrationRequest(
        target_accuracy=1 - alpha, confidence_level=asked.level, seed=seed
    )
    for pair in pairs:
        for one, other in pair.items():
            item = request.items.add(tags={_SAMPLE: str(pair.sample)}, confidence=_confidence(one))
            if one.outcome != OUTCOME_ABSTAIN:
                item.correct = (one.outcome, one.score) == (other.outcome, other.score)
    if not request.items:
        fail(f"{results}: {first!r} and {last!r} of the role {role!r} judged nothing in common")
    if len({item.tags[_SAMPLE] for item in request.items}) < len(request.items):
        request.cluster_tag = _SAMPLE
    found = asked.call(lambda stub: stub.MeasureCalibration(request)).groups[0].threshold
    threshold = None
    if found.HasField("threshold"):
        threshold = min(1.0, math.ceil(found.threshold * _PLACES) / _PLACES)
    figures = _figures(pairs, threshold)
    described = {"role": role, "first": first, "last": last, "alpha": alpha, "items": len(request.items)}
    described |= {"candidates": len(pairs), "threshold": threshold, **figures}
    agreement = found.held_out_accuracy
    disagreement = 1 - agreement.value if agreement.HasField("value") else None
    described["disagreement"] = disagreement
    described["undefined"] = agreement.undefined
    heads = ("threshold", "disagreement", "decided by the first", "cost saved", "candidates", "verdicts")
    table = Table("", columns("first", "last", figures=heads))
    table.add_row(
        first,
        last,
        "none" if threshold is None else number(threshold, 6),
        shown(agreement) if disagreement is None else percent_of(disagreement),
        percent_of(figures["decided"]),
        "" if figures["cost_saved"] is None else percent_of(figures["cost_saved"]),
        str(len(pairs)),
        str(len(request.items)),
    )
    then: tuple[object, ...] = ("compare", "BASELINE", results)
    if threshold is not None:
        members = ("--member", f"{first}={threshold}", "--member", last)
        then = ("judges", "panel", "add", f"{role}=NAME", *members, "--rule", "cascade")
    asked.show(described, (table,), then=then)


def _pairs(results: Path, role: str, first: str, last: str) -> list[_Pair]:
    pairs = []
    try:
        for sample in read_results(results):
            name = sample.WhichOneof("result")
            if name not in {"scripts", "texts"}:
                continue
            result = getattr(sample, name)
            for one in result.candidates if name == "scripts" else result.texts:
                assessed = {
                    each.judge: each.assessment
                    for each in (*one.assessments, *one.shadows)
                    if each.role == role and each.HasField("assessment")
                }
                if first in assessed and last in assessed:
                    pairs.append(_Pair(sample.index, assessed[first], assessed[last]))
    except LineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    return pairs


def _figures(pairs: list[_Pair], threshold: float | None) -> Mapping[str, Any]:
    """The share of candidates that the first decides alone, and of the last one's cost that is saved.

    The cost saved is that of the last judge for them, less that of the first for all, over that of the last
    for all; below 0 where the cascade costs more. None where a cost is unknown.
    """
    costs: defaultdict[str, float] = defaultdict(float)
    alone, known = 0, bool(pairs)
    for pair in pairs:
        usages = [one.provenance.usage for one in (pair.first, pair.last)]
        known &= all(one.HasField("cost_usd") and not one.unpriced_call_count for one in usages)
        for name, one in zip(("first", "last"), usages, strict=True):
            costs[name] += one.cost_usd
        if threshold is not None and not pair.escalates(threshold):
            alone += 1
            costs["saved"] += usages[1].cost_usd
    saved = (costs["saved"] - costs["first"]) / costs["last"] if known and costs["last"] else None
    return {
        "decided": alone / len(pairs) if pairs else 0.0,
        "cost_saved": saved if threshold is not None else None,
    }


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
        _mean_tables(response),
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


def _mean_tables(response: pb.EstimateMeansResponse) -> Iterable[Table]:
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
