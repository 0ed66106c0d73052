"""The judgements of each pair, by method. It keeps numbers only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.texts_pb2 import TextComparison, TextsResult
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.summaries.samples import SampleAggregator

LINE_TAG = "line"
"""The tag that records the number of the row's line, by which a pair's results are put together."""
COUNT_TAG = "k"
"""The tag that records how many subjective roles were asked for, where the command line says."""
BY_ROLES = "roles"
"""The method that is tried; all others are baselines."""
LONGER = "longer"
"""The baseline that prefers the longer text."""
DRPE_SCORE = " (DRPEScore)"
"""Ends the name of a method's scores by equation 4 of DRPE."""


class Judgement(NamedTuple):
    """What one method says of one pair."""

    choice: pb.Preference.ValueType
    """The better text; ``PREFERENCE_ABSTAIN`` where none was found."""
    score: float | None = None
    """How much speaks for the first text, larger for more. None: there is no such number."""
    reason: AbstainReason.ValueType = verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    """Why there is no choice."""


class Pair(NamedTuple):
    """A pair's human preference and group."""

    human: pb.Preference.ValueType
    """Which text people prefer."""
    group: str
    """The value of the tag by which pairs are grouped."""


def by_difference(difference: float) -> Judgement:
    """The judgement of a measure by which the larger value is better."""
    if difference == 0:
        return Judgement(pb.PREFERENCE_TIE, 0.0)
    return Judgement(pb.PREFERENCE_FIRST if difference > 0 else pb.PREFERENCE_SECOND, difference)


class TextsAggregator(SampleAggregator[TextsResult]):
    """The judgements of an evaluation of pairs.

    Args:
        group_by: The tag by whose values pairs are also counted. Empty: none.
    """

    def __init__(self, group_by: str = "") -> None:
        super().__init__()
        self.group_by = group_by
        self.pairs: dict[str, Pair] = {}
        self.judgements: dict[str, dict[str, Judgement]] = {}
        self.failures: Counter[str] = Counter()
        self.figures: Mapping[str, Any] = {}
        self.problems: list[str] = []

    def add(self, result: TextsResult) -> None:
        """Counts a comparison."""
        super().add(result)
        line, count = result.tags[LINE_TAG], result.tags.get(COUNT_TAG, "")
        self.pairs[line] = Pair(result.human_preference, result.tags.get(self.group_by, ""))
        if result.roles.failure:
            self.failures[result.roles.failure] += 1
        for name, one in named_comparisons(result, count):
            self._note(name, line, judgement_of(one.comparison))
            score = drpe_difference(one.comparison)
            if score is not None:
                self._note(name + DRPE_SCORE, line, by_difference(score))
        share = {pb.PREFERENCE_FIRST: 1.0, pb.PREFERENCE_SECOND: 0.0}.get(result.longer, 0.5)
        self._note(LONGER, line, Judgement(result.longer, share))

    def add_scores(self, line: str, differences: Mapping[str, float | None]) -> None:
        """Counts what text metrics say of a pair.

        Args:
            line: The number of the pair's line.
            differences: How much higher the first text scores, by metric; None where a score is undefined.
        """
        for metric, difference in differences.items():
            if difference is None:
                reason = verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
                self._note(metric, line, Judgement(pb.PREFERENCE_ABSTAIN, None, reason))
            else:
                self._note(metric, line, by_difference(difference))

    def summary(self) -> dict[str, Any]:
        """The figures as they are printed by ``--json`` (documented in docs/cli.md; keep it stable)."""
        return {
            **super().summary(),
            "pairs": len(self.pairs),
            "role_failures": dict(self.failures.most_common()),
            **self.figures,
            "problems": self.problems,
        }

    def _note(self, method: str, line: str, judgement: Judgement) -> None:
        self.judgements.setdefault(method, {})[line] = judgement


def named_comparisons(result: TextsResult, count: str) -> Iterator[tuple[str, TextComparison]]:
    """Each comparison under the name of its method, with the judge's where a panel judged.

    Args:
        result: The result of a pair.
        count: The requested number of roles. Empty: not stated.
    """
    seats: Counter[str] = Counter()
    sizes = Counter(one.method for one in result.comparisons)
    for one in result.comparisons:
        seats[one.method] += 1
        name = f"{one.method} k={count}" if count and one.method == BY_ROLES else one.method
        yield (f"{name} {_seat(one, seats[one.method])}" if sizes[one.method] > 1 else name), one


def _seat(one: TextComparison, place: int) -> str:
    return f"[{place}: {one.judge}]"


def judgement_of(comparison: pb.ComparePairResponse) -> Judgement:
    """What a comparison says of a pair."""
    if comparison.preference == pb.PREFERENCE_ABSTAIN:
        reason = next(
            (vote.abstain_reason for vote in comparison.votes), verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
        )
        return Judgement(comparison.preference, None, reason)
    known = comparison.HasField("first_vote_share")
    return Judgement(comparison.preference, comparison.first_vote_share if known else None)


def drpe_difference(comparison: pb.ComparePairResponse) -> float | None:
    """Equation 4 for the first text less that for the second; None where a vote has no confidence."""
    if comparison.preference == pb.PREFERENCE_ABSTAIN:
        return None
    if not (comparison.HasField("first_drpe_score") and comparison.HasField("second_drpe_score")):
        return None
    return comparison.first_drpe_score - comparison.second_drpe_score
