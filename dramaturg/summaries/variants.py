"""The verdicts of variants of an evaluation, and the requests for their agreement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dramaturg.api.alignment.v1.accuracy_pb2 import Grouping, LabelledItem, MeasureAccuracyRequest
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult
from dramaturg.results.groups import BASE, LINE_TAG, VARIANT_TAG

TASK_TAG = "task"
"""The tag of an item's task: verdicts on the candidates of one task are one cluster."""

PASS, FAIL = "PASS", "FAIL"
"""The outcomes that decide."""

_DECIDED: Mapping[int, str] = {verdict_pb2.OUTCOME_PASS: PASS, verdict_pb2.OUTCOME_FAIL: FAIL}


class VerdictKey(NamedTuple):
    """The position of a verdict in a file of rows."""

    line: str
    """The number of the row's line, from 1."""
    task_id: str
    candidate_id: str
    criterion: str


class VerdictOutcome(NamedTuple):
    """A verdict without its texts."""

    outcome: str
    """ "PASS", "FAIL", or empty for an abstention."""
    abstain_reason: int
    """The reason of an abstention, else 0."""


Verdicts = Mapping[VerdictKey, VerdictOutcome]
"""The verdicts of a variant."""


class VariantVerdicts:
    """The verdicts of variants, sample by sample. It keeps the outcomes, not the texts."""

    def __init__(self) -> None:
        self._verdicts: defaultdict[str, dict[VerdictKey, VerdictOutcome]] = defaultdict(dict)

    def add(self, tags: Mapping[str, str], task_id: str, candidate: CandidateResult) -> None:
        """Adds a candidate with the tags of its row. Rows without variant or line are left out."""
        if VARIANT_TAG in tags and LINE_TAG in tags:
            self._verdicts[tags[VARIANT_TAG]].update(verdicts_of(tags[LINE_TAG], task_id, candidate))

    def requests(self) -> Mapping[str, MeasureAccuracyRequest]:
        """The request for the agreement of each variant with the base. Empty: there is no base."""
        base = self._verdicts.get(BASE, {})
        gold = {key: verdict.outcome for key, verdict in base.items() if verdict.outcome}
        requests = {name: agreement_request(verdicts, gold) for name, verdicts in self._verdicts.items()}
        return requests if gold else {}


def verdicts_of(
    line: str, task_id: str, candidate: CandidateResult
) -> Iterator[tuple[VerdictKey, VerdictOutcome]]:
    """The verdicts on a candidate of a row."""
    for verdict in candidate.verdicts:
        key = VerdictKey(line, task_id, candidate.candidate_id, verdict.criterion)
        yield key, VerdictOutcome(_DECIDED.get(verdict.outcome, ""), verdict.abstain_reason)


def agreement_request(verdicts: Verdicts, gold: Mapping[VerdictKey, str]) -> MeasureAccuracyRequest:
    """Asks how often verdicts equal the expected ones, by criterion and of all together.

    An expected verdict that is absent abstains.
    """
    absent = VerdictOutcome("", 0)
    items = []
    for key, label in gold.items():
        verdict = verdicts.get(key, absent)
        items.append(
            LabelledItem(
                gold=label,
                predicted=verdict.outcome,
                abstain_reason=AbstainReason.ValueType(verdict.abstain_reason),
                tags={"criterion": key.criterion, TASK_TAG: key.task_id or key.line},
            )
        )
    return MeasureAccuracyRequest(
        items=items, groupings=[Grouping(tags=["criterion"]), Grouping()], cluster_tag=TASK_TAG
    )
