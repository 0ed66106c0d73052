"""Agreement of each variant with human labels, or with the base variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from dramaturg.api.alignment.v1.accuracy_pb2 import (
    ABSTENTION_POLICY_EXCLUDED,
    AccuracyGroup,
    Grouping,
    LabelledItem,
    MeasureAccuracyRequest,
    PolicyFigures,
)
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.decision_accuracy import ALL
from dramaturg.summaries.estimates import estimate
from dramaturg.summaries.labels import HumanLabels, LabelJoin
from dramaturg.summaries.samples import usage_summary
from dramaturg.summaries.scripts import ScriptsAggregator

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


@dataclass(frozen=True)
class Figures:
    """The figures of one variant."""

    name: str
    """The variant's name."""
    aggregator: VariantAggregator
    """Its verdicts."""
    groups: Mapping[str, AccuracyGroup] = field(default_factory=dict)
    """The agreement with labels, or with the base variant, by criterion; all of them together under "all"."""

    @property
    def decided_criteria(self) -> Sequence[str]:
        """The criteria on which any verdict decides: what a figure over all of them is over."""
        counts = self.aggregator.by_criterion
        return [name for name in criteria_of([self]) if counts[name]["PASS"] + counts[name]["FAIL"]]

    def describe(self, results: str) -> dict[str, Any]:
        """The figures as members of a JSON object."""
        agreement = {name: describe_group(group) for name, group in self.groups.items()}
        counted = {**self.aggregator.by_criterion, ALL: self.aggregator.verdicts}
        return {
            "variant": self.name,
            "decided_criteria": self.decided_criteria,
            "samples": self.aggregator.samples,
            "failed_samples": self.aggregator.failed_samples,
            "by_criterion": {
                name: {
                    **{outcome: counts.get(outcome, 0) for outcome in ("PASS", "FAIL", "ABSTAIN")},
                    "pass_rate": pass_rate(counts),
                    "agreement": agreement.get(name),
                }
                for name, counts in counted.items()
            },
            "abstentions": dict(sorted(self.aggregator.abstentions.items())),
            "usage": usage_summary(self.aggregator.usage),
            "results": results,
        }


def pass_rate(counts: Mapping[str, int]) -> float | None:
    """The share of PASS among the verdicts that decide; None where none does."""
    decided = counts.get("PASS", 0) + counts.get("FAIL", 0)
    return counts.get("PASS", 0) / decided if decided else None


def describe_group(group: AccuracyGroup) -> dict[str, Any]:
    """One agreement. Of labels that are 0 and 1 the mean squared error is one less the accuracy."""
    excluded = next(
        (one for one in group.policies if one.policy == ABSTENTION_POLICY_EXCLUDED), PolicyFigures()
    )
    rate = estimate(group.accuracy_when_answered)
    return {
        "n": group.item_count,
        "answered": group.answered_count,
        "equal": group.correct_count,
        "rate": rate,
        "rate_abstentions_unequal": estimate(group.accuracy_abstentions_wrong),
        "mean_squared_error": None if rate["value"] is None else 1 - rate["value"],
        "balanced": estimate(excluded.balanced_accuracy)["value"],
        "cohen_kappa": estimate(excluded.cohen_kappa)["value"],
        "majority_baseline": estimate(group.majority_baseline)["value"],
    }


async def measure(
    alignment: AlignmentServiceAsyncStub,
    aggregators: Mapping[str, VariantAggregator],
    gold: Mapping[Place, str],
) -> tuple[Sequence[Figures], str]:
    """The figures of each variant, and why there are none; or nothing.

    Args:
        alignment: Measures.
        aggregators: The verdicts, by variant.
        gold: What each verdict should be; of others nothing is said.
    """
    found = []
    try:
        for name, aggregator in aggregators.items():
            items = _items(aggregator, gold)
            groups = {}
            if items:
                request = MeasureAccuracyRequest(
                    items=items,
                    groupings=[Grouping(tags=["criterion"]), Grouping()],
                    cluster_tag=TASK_TAG,
                )
                response = await alignment.MeasureAccuracy(request)
                groups = {group.tags.get("criterion", ALL): group for group in response.groups}
            found.append(Figures(name, aggregator, groups))
    except grpc.aio.AioRpcError as failure:
        why = f"the alignment service failed: {from_rpc_error(failure).message}"
        return [Figures(name, aggregator) for name, aggregator in aggregators.items()], why
    return found, ""


def expected(base: VariantAggregator, people: HumanLabels | None) -> Mapping[Place, str]:
    """What every verdict is compared with: people's label, or without labels the base's outcome."""
    if people is None:
        return {place: said.outcome for place, said in base.verdicts_by_place.items() if said.outcome}
    join = LabelJoin(people)
    labels = {
        place: join.of(place.line, place.task_id, place.candidate_id, place.criterion)
        for place in base.verdicts_by_place
    }
    return {place: PASS if label else FAIL for place, label in labels.items() if label is not None}


def criteria_of(figures: Sequence[Figures]) -> Sequence[str]:
    """The criteria that any variant judged, ABSEval's first."""
    judged = {name for one in figures for name in one.aggregator.by_criterion}
    return [*(name for name in ABSEVAL if name in judged), *sorted(judged - set(ABSEVAL))]


def _items(aggregator: VariantAggregator, gold: Mapping[Place, str]) -> Sequence[LabelledItem]:
    """An item for each verdict that there should be; one that is not there abstains."""
    items = []
    for place, label in gold.items():
        said = aggregator.verdicts_by_place.get(place)
        items.append(
            LabelledItem(
                gold=label,
                predicted=said.outcome if said else "",
                abstain_reason=AbstainReason.ValueType(said.abstain_reason if said else 0),
                tags={"criterion": place.criterion, TASK_TAG: place.task_id or place.line},
            )
        )
    return items


LINE_TAG = "line"
"""The tag that records the number of a row's line, by which variants' results are put together."""


TASK_TAG = "task"
"""The tag of an item's task: verdicts on the candidates of one task are one cluster."""


PASS, FAIL = "PASS", "FAIL"
"""The outcomes that decide."""

_DECIDED: Mapping[int, str] = {verdict_pb2.OUTCOME_PASS: PASS, verdict_pb2.OUTCOME_FAIL: FAIL}


class Place(NamedTuple):
    """Which verdict of a file."""

    line: str
    """The number of the row's line, from 1."""
    task_id: str
    """The id of the row's task."""
    candidate_id: str
    """The id of the candidate."""
    criterion: str
    """The criterion."""


class Said(NamedTuple):
    """A verdict, without its words."""

    outcome: str
    """ "PASS", "FAIL", or empty for an abstention."""
    abstain_reason: int
    """Why it abstains; 0 where it does not."""


class VariantAggregator(ScriptsAggregator):
    """The counts of a variant, and every outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.verdicts_by_place: dict[Place, Said] = {}

    def add(self, result: ScriptsResult) -> None:
        """Counts a sample."""
        super().add(result)
        for candidate in result.candidates:
            for verdict in candidate.verdicts:
                place = Place(
                    result.tags[LINE_TAG], result.task.id, candidate.candidate_id, verdict.criterion
                )
                outcome = _DECIDED.get(verdict.outcome, "")
                self.verdicts_by_place[place] = Said(outcome, verdict.abstain_reason)
