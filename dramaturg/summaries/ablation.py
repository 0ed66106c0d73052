"""Agreement of the verdicts of each variant with human labels, or with the base variant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VerdictFigures
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.variants import BASE, LINE_TAG, VARIANT_TAG
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.decision_accuracy import ALL
from dramaturg.summaries.estimates import estimate
from dramaturg.summaries.labels import HumanLabels, LabelJoin

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

TASK_TAG = "task"
"""The tag of an item's task: verdicts on the candidates of one task are one cluster."""

PASS, FAIL = "PASS", "FAIL"
"""The outcomes that decide."""

_DECIDED: Mapping[int, str] = {verdict_pb2.OUTCOME_PASS: PASS, verdict_pb2.OUTCOME_FAIL: FAIL}


class Place(NamedTuple):
    """The position of a verdict in a file of rows."""

    line: str
    """The number of the row's line, from 1."""
    task_id: str
    candidate_id: str
    criterion: str


class Said(NamedTuple):
    """A verdict without its texts."""

    outcome: str
    """ "PASS", "FAIL", or empty for an abstention."""
    abstain_reason: int
    """The reason of an abstention, else 0."""


Verdicts = Mapping[Place, Said]
"""The verdicts of a variant."""


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


class VariantVerdicts:
    """The verdicts of variants, sample by sample. It keeps the outcomes, not the texts."""

    def __init__(self) -> None:
        self._verdicts: defaultdict[str, dict[Place, Said]] = defaultdict(dict)

    def add(self, tags: Mapping[str, str], task_id: str, candidate: CandidateResult) -> None:
        """Adds a candidate with the tags of its row. Rows without variant or line are left out."""
        if VARIANT_TAG in tags and LINE_TAG in tags:
            self._verdicts[tags[VARIANT_TAG]].update(_said(tags[LINE_TAG], task_id, candidate))

    def requests(self) -> Mapping[str, MeasureAccuracyRequest]:
        """The request for the agreement of each variant with the base. Empty: there is no base."""
        gold = expected_outcomes(self._verdicts.get(BASE, {}), None)
        found = {name: agreement_request(verdicts, gold) for name, verdicts in self._verdicts.items()}
        return found if gold else {}


def _said(line: str, task_id: str, candidate: CandidateResult) -> Iterator[tuple[Place, Said]]:
    for verdict in candidate.verdicts:
        place = Place(line, task_id, candidate.candidate_id, verdict.criterion)
        yield place, Said(_DECIDED.get(verdict.outcome, ""), verdict.abstain_reason)


def read_verdicts(samples: Iterable[RunSample]) -> Verdicts:
    """The verdicts of a variant's results, whose rows have ``LINE_TAG``."""
    return {
        place: said
        for sample in samples
        for candidate in sample.scripts.candidates
        for place, said in _said(sample.scripts.tags[LINE_TAG], sample.scripts.task.id, candidate)
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
    alignment: AlignmentServiceAsyncStub, variants: Mapping[str, Verdicts], gold: Mapping[Place, str]
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


def agreement_request(verdicts: Verdicts, gold: Mapping[Place, str]) -> MeasureAccuracyRequest:
    """Asks how often verdicts equal the expected ones, by criterion and of all together."""
    return MeasureAccuracyRequest(
        items=_items(verdicts, gold),
        groupings=[Grouping(tags=["criterion"]), Grouping()],
        cluster_tag=TASK_TAG,
    )


def expected_outcomes(base: Verdicts, people: HumanLabels | None) -> Mapping[Place, str]:
    """The outcome that each verdict is compared with: the human label, or without labels the base's."""
    if people is None:
        return {place: said.outcome for place, said in base.items() if said.outcome}
    join = LabelJoin(people)
    labels = {
        place: join.of(place.line, place.task_id, place.candidate_id, place.criterion) for place in base
    }
    return {place: PASS if label else FAIL for place, label in labels.items() if label is not None}


def criteria_of(figures: Sequence[VariantFigures]) -> Sequence[str]:
    """The criteria that any variant judged, ABSEval's first."""
    judged = {name for one in figures for name in one.verdicts} - {ALL}
    return [*(name for name in ABSEVAL if name in judged), *sorted(judged - set(ABSEVAL))]


def _items(verdicts: Verdicts, gold: Mapping[Place, str]) -> Sequence[LabelledItem]:
    """An item for each expected verdict; one that is absent abstains."""
    items = []
    for place, label in gold.items():
        said = verdicts.get(place)
        items.append(
            LabelledItem(
                gold=label,
                predicted=said.outcome if said else "",
                abstain_reason=AbstainReason.ValueType(said.abstain_reason if said else 0),
                tags={"criterion": place.criterion, TASK_TAG: place.task_id or place.line},
            )
        )
    return items
