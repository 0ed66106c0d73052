"""Detection rates of faults and false-alarm rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dramaturg.api.alignment.v1.accuracy_pb2 import (
    AccuracyGroup,
    Grouping,
    LabelledItem,
    MeasureAccuracyRequest,
    Subset,
)
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.perturbations.categories import Category
from dramaturg.perturbations.variants import (
    CANDIDATE_TAG,
    CATEGORY_TAG,
    LINE_TAG,
    OPERATION_TAG,
    UNTOUCHED,
)
from dramaturg.results.names import outcome_name
from dramaturg.summaries.decision_accuracy import ALL
from dramaturg.summaries.estimates import estimate

FLAGGED = "FAIL"
"""The outcome that says that there is a fault."""
PASSED_BEFORE = "passed_untouched"
"""The scripts that passed the criterion before the fault was put in."""

_BEFORE = "untouched"


class NotPerturbedError(ValueError):
    """A result of a row that ``perturb write`` did not write; the message states what is missing."""


@dataclass
class Findings:
    """What judges said of scripts with faults, and of the same without."""

    faults: list[LabelledItem] = field(default_factory=list)
    """The verdict on the criterion of each fault, tagged with its category and operation."""
    alarms: list[LabelledItem] = field(default_factory=list)
    """The verdicts on the untouched scripts, tagged with their criterion."""
    untouched: int = 0
    """How many untouched scripts there are."""

    @classmethod
    def read(cls, results: Iterable[ScriptsResult]) -> Findings:
        """Reads the results of the rows of ``perturb write``, in any order.

        Raises:
            NotPerturbedError: A result is of another row.
        """
        found = cls()
        before: dict[tuple[str, str], Mapping[str, Verdict]] = {}
        faulty: list[tuple[tuple[str, str], Category, str, Verdict]] = []
        for result in results:
            key, category, verdicts = _read(result)
            if category is not None:
                verdict = verdicts.get(category.criterion, Verdict())
                faulty.append((key, category, result.tags.get(OPERATION_TAG, ""), verdict))
                continue
            found.untouched += 1
            before[key] = verdicts
            found.alarms += [
                _item(verdicts.get(name, Verdict()), criterion=name, **{LINE_TAG: key[0]}) for name in ABSEVAL
            ]
        for key, category, operation, verdict in faulty:
            earlier = before.get(key, {}).get(category.criterion, Verdict())
            found.faults.append(
                _item(
                    verdict,
                    category=category,
                    operation=operation,
                    **{_BEFORE: outcome_name(earlier.outcome), LINE_TAG: key[0]},
                )
            )
        return found

    def detection_request(self) -> MeasureAccuracyRequest:
        """Asks what share of the faults is flagged, by category, and by operation within it."""
        return MeasureAccuracyRequest(
            items=self.faults,
            groupings=[Grouping(tags=["category"]), Grouping(tags=["category", "operation"])],
            cluster_tag=LINE_TAG,
            subsets=[Subset(name=PASSED_BEFORE, tag=_BEFORE, values=["PASS"])],
        )

    def alarm_request(self) -> MeasureAccuracyRequest:
        """Asks what share of the untouched scripts is flagged, by criterion."""
        return MeasureAccuracyRequest(
            items=self.alarms, groupings=[Grouping(tags=["criterion"])], cluster_tag=LINE_TAG
        )


@dataclass(frozen=True)
class Detection:
    """The detection of one kind of fault."""

    category: Category
    """What went wrong."""
    operation: str
    """The operation that made it. "all": any."""
    faults: AccuracyGroup
    """What judges said of the scripts with the fault; an accuracy is a share that is flagged."""
    passed_before: AccuracyGroup
    """The same of the scripts that had passed without the fault."""
    alarms: AccuracyGroup
    """What they said of the untouched scripts on the same criterion."""

    @property
    def youden(self) -> float | None:
        """Detection rate less false-alarm rate, abstentions as unflagged (Youden 1950).

        0 for a judge that flags at random, 1 at best.
        """
        rates = (self.faults.accuracy_abstentions_wrong, self.alarms.accuracy_abstentions_wrong)
        if not all(rate.HasField("value") for rate in rates):
            return None
        return rates[0].value - rates[1].value

    def describe(self) -> dict[str, Any]:
        """The figures as members of a JSON object."""
        return {
            "category": self.category,
            "operation": self.operation,
            "criterion": self.category.criterion,
            **describe_flags(self.faults),
            PASSED_BEFORE: describe_flags(self.passed_before),
            "false_alarms": describe_flags(self.alarms),
            "youden_j": self.youden,
        }


def describe_flags(group: AccuracyGroup) -> dict[str, Any]:
    """How many verdicts there are, how many decide, and how many of these flag a fault."""
    return {
        "n": group.item_count,
        "judged": group.answered_count,
        "flagged": group.correct_count,
        "rate": estimate(group.accuracy_when_answered),
        "rate_abstentions_unflagged": estimate(group.accuracy_abstentions_wrong),
        "abstentions": {
            name.removeprefix("ABSTAIN_REASON_"): count for name, count in sorted(group.abstentions.items())
        },
    }


def read_detections(
    faults: Iterable[AccuracyGroup], alarms: Mapping[str, AccuracyGroup]
) -> Sequence[Detection]:
    """The detections, by category in the paper's order, all operations of one first.

    Args:
        faults: The groups that ``Findings.detection_request`` asks for.
        alarms: Those of ``Findings.alarm_request``, by criterion.
    """
    groups: dict[tuple[str, str], dict[str, AccuracyGroup]] = {}
    for group in faults:
        key = group.tags["category"], group.tags.get("operation", ALL)
        groups.setdefault(key, {})[group.subset] = group
    order = list(Category)
    return [
        Detection(
            Category(category),
            operation,
            found[ALL],
            found.get(PASSED_BEFORE, AccuracyGroup()),
            alarms.get(Category(category).criterion, AccuracyGroup()),
        )
        for (category, operation), found in sorted(
            groups.items(), key=lambda one: (order.index(Category(one[0][0])), one[0][1] != ALL, one[0][1])
        )
    ]


def _read(result: ScriptsResult) -> tuple[tuple[str, str], Category | None, Mapping[str, Verdict]]:
    """The script of a result, its fault, and its verdicts by criterion."""
    for tag in (CATEGORY_TAG, CANDIDATE_TAG, LINE_TAG):
        if tag not in result.tags:
            raise NotPerturbedError(f"has no tag {tag!r}: it is not of a row of 'perturb write'")
    category = result.tags[CATEGORY_TAG]
    if category != UNTOUCHED and category not in list(Category):
        raise NotPerturbedError(f"has an unknown {CATEGORY_TAG} {category!r}")
    name = result.tags[CANDIDATE_TAG]
    candidate = next((one for one in result.candidates if one.candidate_id == name), None)
    if candidate is None:
        raise NotPerturbedError(f"has no candidate {name!r}")
    verdicts = {verdict.criterion: verdict for verdict in candidate.verdicts}
    return (result.tags[LINE_TAG], name), None if category == UNTOUCHED else Category(category), verdicts


def _item(verdict: Verdict, **tags: str) -> LabelledItem:
    outcome = outcome_name(verdict.outcome)
    return LabelledItem(
        gold=FLAGGED,
        predicted=outcome if outcome in ("PASS", "FAIL") else "",
        abstain_reason=verdict.abstain_reason,
        tags=tags,
    )
