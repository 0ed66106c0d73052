"""Collects the verdicts of a variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import ScriptsResult
from dramaturg.cli.tally import Tally

LINE_TAG = "line"
"""The tag that records the number of a row's line, by which variants' results are put together."""


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


class VariantTally(Tally):
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
