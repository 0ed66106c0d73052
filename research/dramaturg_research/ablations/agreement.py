"""Agreement of the verdicts of each variant with human labels, or with the base variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from dramaturg.api.alignment.v1.accuracy_pb2 import (
    ABSTENTION_POLICY_EXCLUDED,
    AccuracyGroup,
    PolicyFigures,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VerdictFigures
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.groups import LINE_TAG
from dramaturg.results.names import ALL
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.estimates import estimate
from dramaturg.summaries.labels import HumanLabels, LabelJoin
from dramaturg.summaries.variants import FAIL, PASS, VerdictKey, Verdicts, agreement_request, verdicts_of

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


@dataclass(frozen=True)
class VariantFigures:
    """The figures of one variant."""

    name: str
    """The variant's name."""
    summary: Summary
    """The summary of its results."""
    agreement: Mapping[str, AccuracyGroup] = field(default_factory=dict)
    """The agreement with labels, or with the base variant, by criterion; of all together under "all"."""

    @property
    def verdicts(self) -> Mapping[str, VerdictFigures]:
        """The verdicts on all models by criterion; of all criteria together under "all"."""
        figures = self.summary.scripts.figures
        return {one.criterion or ALL: one for one in figures if one.all_models and not one.tags}

    @property
    def decided_criteria(self) -> Sequence[str]:
        """The criteria with a verdict that decides, which a figure over all criteria rests on."""
        verdicts = self.verdicts
        return [name for name in criteria_of([self]) if verdicts[name].pass_count + verdicts[name].fail_count]


def read_verdicts(samples: Iterable[RunSample]) -> Verdicts:
    """The verdicts of a variant's results, whose rows have ``LINE_TAG``."""
    return {
        key: verdict
        for sample in samples
        for candidate in sample.scripts.candidates
        for key, verdict in verdicts_of(sample.scripts.tags[LINE_TAG], sample.scripts.task.id, candidate)
    }


def describe_agreement(group: AccuracyGroup) -> dict[str, Any]:
    """One agreement as members of a JSON object.

    The mean squared error of labels that are 0 and 1 is one less the accuracy.
    """
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


async def measure_agreement(
    alignment: AlignmentServiceAsyncStub, variants: Mapping[str, Verdicts], gold: Mapping[VerdictKey, str]
) -> tuple[Mapping[str, Mapping[str, AccuracyGroup]], str]:
    """The agreement of each variant by criterion, and the reason if there is none; else "".

    Args:
        alignment: Measures.
        variants: The verdicts by variant.
        gold: The expected outcome of each verdict; verdicts without one are left out.
    """
    found = {}
    try:
        for name, verdicts in variants.items():
            request = agreement_request(verdicts, gold)
            if not request.items:
                continue
            response = await alignment.MeasureAccuracy(request)
            found[name] = {group.tags.get("criterion", ALL): group for group in response.groups}
    except grpc.aio.AioRpcError as failure:
        return {}, f"the alignment service failed: {from_rpc_error(failure).message}"
    return found, ""


def labelled_outcomes(base: Verdicts, people: HumanLabels) -> Mapping[VerdictKey, str]:
    """The human label of each verdict of the base that has one, as an outcome."""
    join = LabelJoin(people)
    labels = {key: join.of(key.line, key.task_id, key.candidate_id, key.criterion) for key in base}
    return {key: PASS if label else FAIL for key, label in labels.items() if label is not None}


def criteria_of(figures: Sequence[VariantFigures]) -> Sequence[str]:
    """The criteria that any variant judged, ABSEval's first."""
    judged = {name for one in figures for name in one.verdicts} - {ALL}
    return [*(name for name in ABSEVAL if name in judged), *sorted(judged - set(ABSEVAL))]
