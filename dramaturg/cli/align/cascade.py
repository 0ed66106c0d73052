"""``dramaturg labels align cascade``: the threshold of a stage of a cascade."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import calibration_pb2
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, Assessment, Verdict
from dramaturg.cli.align.options import Asked, Seed
from dramaturg.cli.align.report import shown
from dramaturg.cli.cells import number
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.platform import fail
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.files import read_results
from dramaturg.tables.cells import percent_of
from dramaturg.tables.model import Table, columns

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
