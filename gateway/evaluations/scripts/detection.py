"""Detection rates of faults and false-alarm rates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dramaturg.api.alignment.v1.accuracy_pb2 import (
    AccuracyGroup,
    Grouping,
    LabelledItem,
    MeasureAccuracyRequest,
    Subset,
)
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult
from dramaturg.api.evaluation.v1.summary_pb2 import FaultFigures
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.meta_evaluation.rules import (
    CANDIDATE_TAG,
    CATEGORY_TAG,
    LINE_TAG,
    OPERATION_TAG,
    UNTOUCHED,
    Category,
)
from dramaturg.results.names import ALL, outcome_name

FLAGGED = "FAIL"
"""The outcome that says that there is a fault."""
PASSED_BEFORE = "passed_unperturbed"
"""The scripts that passed the criterion before the fault was put in."""

_BEFORE = "unperturbed"

Outcome = tuple[int, int]
"""The outcome of a verdict and its reason to abstain."""
NO_VERDICT: Outcome = (0, 0)
"""The outcome where there is no verdict."""


class PerturbedVerdicts:
    """The verdicts on scripts with planted faults, and on the same scripts without, sample by sample.

    It keeps the outcomes, not the texts.
    """

    def __init__(self) -> None:
        self.unperturbed_count = 0
        self._before: dict[tuple[str, str], Mapping[str, Outcome]] = {}
        self._faulty: list[tuple[tuple[str, str], Category, str, Outcome]] = []

    @property
    def fault_count(self) -> int:
        """The number of scripts with a fault."""
        return len(self._faulty)

    def add(self, tags: Mapping[str, str], candidate: CandidateResult) -> None:
        """Adds a candidate with the tags of its row. Candidates that were not perturbed are left out."""
        if CATEGORY_TAG not in tags or tags.get(CANDIDATE_TAG) != candidate.candidate_id:
            return
        key = tags.get(LINE_TAG, ""), candidate.candidate_id
        verdicts = {one.criterion: (one.outcome, one.abstain_reason) for one in candidate.verdicts}
        category = tags[CATEGORY_TAG]
        if category == UNTOUCHED:
            self.unperturbed_count += 1
            self._before[key] = verdicts
        elif category in list(Category):
            fault = Category(category)
            found = verdicts.get(fault.criterion, NO_VERDICT)
            self._faulty.append((key, fault, tags.get(OPERATION_TAG, ""), found))

    def detection_request(self) -> MeasureAccuracyRequest:
        """Asks what share of the faults is flagged, by category, and by operation within it."""
        items = []
        for key, category, operation, outcome in self._faulty:
            before, _ = self._before.get(key, {}).get(category.criterion, NO_VERDICT)
            tags = {_BEFORE: outcome_name(before), LINE_TAG: key[0]}
            items.append(_item(outcome, category=category, operation=operation, **tags))
        return MeasureAccuracyRequest(
            items=items,
            groupings=[Grouping(tags=["category"]), Grouping(tags=["category", "operation"])],
            cluster_tag=LINE_TAG,
            subsets=[Subset(name=PASSED_BEFORE, tag=_BEFORE, values=["PASS"])],
        )

    def alarm_request(self) -> MeasureAccuracyRequest:
        """Asks what share of the unperturbed scripts is flagged, by criterion."""
        items = [
            _item(verdicts.get(name, NO_VERDICT), criterion=name, **{LINE_TAG: key[0]})
            for key, verdicts in self._before.items()
            for name in ABSEVAL
        ]
        return MeasureAccuracyRequest(
            items=items, groupings=[Grouping(tags=["criterion"])], cluster_tag=LINE_TAG
        )


def fault_figures(
    groups: Iterable[AccuracyGroup], alarms: Mapping[str, AccuracyGroup]
) -> Iterator[FaultFigures]:
    """The detection, by category in the paper's order, all operations of one first.

    Args:
        groups: The groups of ``PerturbedVerdicts.detection_request``.
        alarms: Those of ``PerturbedVerdicts.alarm_request``, by criterion.
    """
    found: dict[tuple[str, str], dict[str, AccuracyGroup]] = {}
    for group in groups:
        key = group.tags["category"], group.tags.get("operation", "")
        found.setdefault(key, {})[group.subset] = group
    order = list(Category)
    for (name, operation), by_subset in sorted(
        found.items(), key=lambda one: (order.index(Category(one[0][0])), one[0][1])
    ):
        category = Category(name)
        figures = FaultFigures(
            category=category,
            operation=operation,
            criterion=category.criterion,
            faults=by_subset[ALL],
            passed_unperturbed=by_subset.get(PASSED_BEFORE),
        )
        detected = figures.faults.accuracy_abstentions_wrong
        flagged = alarms.get(category.criterion, AccuracyGroup()).accuracy_abstentions_wrong
        if detected.HasField("value") and flagged.HasField("value"):
            figures.youden_j = detected.value - flagged.value
        yield figures


def _item(verdict: Outcome, **tags: str) -> LabelledItem:
    outcome, reason = verdict
    name = outcome_name(outcome)
    return LabelledItem(
        gold=FLAGGED,
        predicted=name if name in ("PASS", "FAIL") else "",
        abstain_reason=AbstainReason.ValueType(reason),
        tags=tags,
    )
