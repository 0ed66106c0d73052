"""Summarises pairs of texts: judgements of methods, and their correlations with people (DRPE)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dramaturg.api.alignment.v1 import accuracy_pb2, correlation_pb2, preference_pb2
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_NOT_SUPPORTED, AbstainReason
from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import PairMethodFigures, Summary, SummaryOptions
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.kinds.pairs import BY_CRITERION, COUNT_TAG, LINE_TAG, comparisons
from dramaturg.results.means import estimate_of, mean_of
from dramaturg.results.names import abstention_name
from gateway.evaluations.judge_comparisons import ComparedJudgement
from gateway.evaluations.pairs.roles import RoleVotes
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import KindFigures, KindSummary
from gateway.evaluations.verdict_figures import OrderRates, RepeatCounter, rate_of

BY_ROLES = "roles"
"""The method of DRPE."""
LONGER = "longer"
"""The baseline that prefers the longer text."""
DRPE_SCORE = " (DRPEScore)"
"""Ends the name of a method's scores by equation 4 of DRPE."""


class Judgement(NamedTuple):
    """The judgement of one method on one pair."""

    choice: pb.Preference.ValueType
    """The preferred text. ``PREFERENCE_ABSTAIN``: none."""
    score: float | None = None
    """The score of the first text, larger for better. None: there is no score."""
    reason: AbstainReason.ValueType = verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    """The reason of an abstention."""


def by_difference(difference: float) -> Judgement:
    """The judgement of a measure by which the larger value is better."""
    if difference == 0:
        return Judgement(pb.PREFERENCE_TIE, 0.0)
    return Judgement(pb.PREFERENCE_FIRST if difference > 0 else pb.PREFERENCE_SECOND, difference)


def named_comparisons(result: PairResult, count: str) -> Iterator[tuple[str, PairComparison]]:
    """Each comparison under the name of its method, with the judge's where a panel judged.

    The vote by a criterion is a comparison, too.

    Args:
        result: The result of a pair.
        count: The requested number of roles. Empty: not stated.
    """
    seats: Counter[str] = Counter()
    named = list(comparisons(result))
    sizes = Counter(one.method for one in named)
    for one in named:
        seats[one.method] += 1
        name = f"{one.method} k={count}" if count and one.method == BY_ROLES else one.method
        yield (f"{name} {_seat(one, seats[one.method])}" if sizes[one.method] > 1 else name), one


def _seat(one: PairComparison, place: int) -> str:
    return f"[{place}: {one.judge}]"


def judgement_of(comparison: pb.ComparePairResponse) -> Judgement:
    """The judgement of a comparison."""
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


def is_baseline(method: str) -> bool:
    """Whether a method is a baseline: all are but the roles and the criteria."""
    return not method.startswith((BY_ROLES, BY_CRITERION))


def best_baseline(response: correlation_pb2.CorrelateScoresResponse) -> str:
    """The baseline of the largest absolute Pearson correlation (section 4.1); empty if there is none."""
    pearson = {
        one.measure: abs(one.pearson.value)
        for one in response.measures
        if one.pearson.HasField("value") and is_baseline(one.measure)
    }
    return max(pearson, key=lambda name: (pearson[name], name), default="")


def roles_against(
    baseline: str, response: correlation_pb2.CorrelateScoresResponse
) -> Sequence[correlation_pb2.CorrelationDifference]:
    """Each method of roles as the first measure against a baseline as the second.

    A positive t says that the method correlates more strongly with people than the baseline.
    """
    found = []
    for one in response.differences:
        if baseline not in (one.first_measure, one.second_measure):
            continue
        pair = one if one.second_measure == baseline else _reversed(one)
        if not is_baseline(pair.first_measure):
            found.append(pair)
    return found


def _reversed(pair: correlation_pb2.CorrelationDifference) -> correlation_pb2.CorrelationDifference:
    """The comparison of the second measure with the first: figures of differences have the other sign."""
    turned = correlation_pb2.CorrelationDifference()
    turned.CopyFrom(pair)
    turned.first_measure, turned.second_measure = pair.second_measure, pair.first_measure
    for estimate in (turned.williams_t, turned.kendall_difference):
        if estimate.HasField("value"):
            estimate.value = -estimate.value
        if estimate.HasField("lower"):
            estimate.lower, estimate.upper = -estimate.upper, -estimate.lower
    return turned


RESAMPLES = 2000
"""The resamples of the correlations' intervals."""
_RATING_RESAMPLES = 500

_LABELS = {pb.PREFERENCE_FIRST: "first", pb.PREFERENCE_SECOND: "second", pb.PREFERENCE_TIE: "tie"}
_HUMAN = {pb.PREFERENCE_FIRST: 1.0, pb.PREFERENCE_SECOND: 0.0, pb.PREFERENCE_TIE: 0.5}
_SHARES = {pb.PREFERENCE_FIRST: 1.0, pb.PREFERENCE_SECOND: 0.0, pb.PREFERENCE_TIE: 0.5}
_UNDEFINED = Judgement(pb.PREFERENCE_ABSTAIN, None, ABSTAIN_REASON_NOT_SUPPORTED)
_FEWEST_LABELLED = 2


class PairsKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], tuple[str, PairResult]]]:
        # Requests of one pair with several numbers of roles are samples of their own with one line.
        tags = {**sample.pair.tags, **sample.tags}
        pair = tags.get(LINE_TAG) or f"#{sample.index}"
        yield tags, (pair, sample.pair)

    def compared_judgements(self, sample: RunSample) -> Iterator[ComparedJudgement]:
        result = sample.pair
        # Requests of one pair with several numbers of roles are not independent.
        task = {**result.tags, **sample.tags}.get(LINE_TAG) or sample.index
        for shadow in result.shadows:
            for one in result.comparisons:
                if (one.method, one.judge) == (shadow.method, shadow.shadow_of):
                    yield ComparedJudgement(task, result.id, "", one.method, one.comparison, shadow)
                    break

    def figures(self, options: SummaryOptions) -> PairsFigures:
        return PairsFigures(options.seed)


@dataclass
class _Method:
    """The judgements of one method, by pair."""

    judgements: dict[str, Judgement] = field(default_factory=dict)
    order: OrderRates = field(default_factory=OrderRates)
    repeats: RepeatCounter = field(default_factory=RepeatCounter)
    role_counts: set[int] = field(default_factory=set)
    requested: int = 0
    systems: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The authors of the judged texts, where they are named and differ."""


class PairsFigures(KindFigures):
    """Judgements by method.

    Args:
        seed: The seed of resampled intervals.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._humans: dict[str, pb.Preference.ValueType] = {}
        self._longer: dict[str, pb.Preference.ValueType] = {}
        self._failures: Counter[str] = Counter()
        self._methods: defaultdict[str, _Method] = defaultdict(_Method)
        self._roles = RoleVotes()

    def add(self, parts: Sequence[tuple[str, PairResult]]) -> None:
        for pair, result in parts:
            self._add(pair, result)

    def _add(self, pair: str, result: PairResult) -> None:
        self._humans[pair], self._longer[pair] = result.human_preference, result.longer
        if result.roles.failure:
            self._failures[result.roles.failure] += 1
        if result.roles.HasField("clustering"):
            self._roles.note_clustering()
        for name, one in named_comparisons(result, result.tags.get(COUNT_TAG, "")):
            self._add_comparison(name, pair, one, result)
        for metric in result.text_metrics:
            difference = result.metric_differences.get(metric)
            judgement = _UNDEFINED if difference is None else by_difference(difference)
            self._methods[metric].judgements[pair] = judgement
        score = _SHARES.get(result.longer, 0.5)
        self._methods[LONGER].judgements[pair] = Judgement(result.longer, score)

    def _add_comparison(self, name: str, pair: str, one: PairComparison, result: PairResult) -> None:
        method = self._methods[name]
        method.judgements[pair] = judgement_of(one.comparison)
        systems = result.first_model, result.second_model
        if all(systems) and len(set(systems)) > 1:
            method.systems[pair] = systems
        method.repeats.add(one.comparison)
        method.order.add(vote.ballots for vote in one.comparison.votes)
        if not one.method.startswith(BY_CRITERION):
            self._roles.add(name, one.comparison.votes, result.human_preference)
        if one.method == BY_ROLES:
            method.role_counts.add(len(one.comparison.votes))
            requested = result.tags.get(COUNT_TAG, "")
            method.requested = int(requested) if requested.isdecimal() else 0
        score = drpe_difference(one.comparison)
        if score is not None:
            self._methods[name + DRPE_SCORE].judgements[pair] = by_difference(score)

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        written = summary.pairs
        labelled = [pair for pair, human in self._humans.items() if human in _LABELS]
        for name, method in self._methods.items():
            figures = self._figures(name, method)
            figures.tags.update(tags)
            if labelled:
                request = self._accuracy_request(labelled, method)
                response = statistics.alignment("MeasureAccuracy", request)
                if response is not None:
                    figures.accuracy.CopyFrom(response.groups[0])
            written.methods.append(figures)
        if tags:
            return
        written.pair_count, written.labelled_pair_count = len(self._humans), len(labelled)
        written.role_failures.update(self._failures)
        self._roles.write(written, statistics)
        if len(labelled) >= _FEWEST_LABELLED:
            self._correlate(labelled, summary, statistics)
        for name, method in self._methods.items():
            if method.systems:
                self._rate(name, method, summary, statistics)

    def _figures(self, name: str, method: _Method) -> PairMethodFigures:
        choices = Counter(judgement.choice for judgement in method.judgements.values())
        longer = [
            judgement.choice == self._longer[pair]
            for pair, judgement in method.judgements.items()
            if {judgement.choice, self._longer[pair]} <= {pb.PREFERENCE_FIRST, pb.PREFERENCE_SECOND}
        ]
        figures = PairMethodFigures(
            method=name,
            baseline=is_baseline(name),
            pair_count=len(method.judgements),
            first_count=choices[pb.PREFERENCE_FIRST],
            second_count=choices[pb.PREFERENCE_SECOND],
            tie_count=choices[pb.PREFERENCE_TIE],
            abstentions_by_reason=Counter(
                abstention_name(judgement.reason)
                for judgement in method.judgements.values()
                if judgement.choice not in _LABELS
            ),
            both_orders_count=method.order.inconsistent.judged,
            least_role_count=min(method.role_counts, default=0),
            most_role_count=max(method.role_counts, default=0),
            requested_role_count=method.requested,
            inconsistent_share=rate_of(method.order.inconsistent),
            first_presented_share=rate_of(method.order.first_presented),
            longer_share=estimate_of(mean_of(longer, 0.0, 1.0), len(longer)) if longer else None,
        )
        method.repeats.write(figures)
        return figures

    def _accuracy_request(
        self, labelled: Sequence[str], method: _Method
    ) -> accuracy_pb2.MeasureAccuracyRequest:
        request = accuracy_pb2.MeasureAccuracyRequest(
            abstention_policy=accuracy_pb2.ABSTENTION_POLICY_EXCLUDED, groupings=[accuracy_pb2.Grouping()]
        )
        for pair in labelled:
            # A sample that failed has no judgement at all; that, too, is an abstention.
            judgement = method.judgements.get(pair, Judgement(pb.PREFERENCE_ABSTAIN))
            request.items.add(
                gold=_LABELS[self._humans[pair]],
                predicted=_LABELS.get(judgement.choice, ""),
                abstain_reason=judgement.reason,
            )
        return request

    def _rate(self, name: str, method: _Method, summary: Summary, statistics: Statistics) -> None:
        request = preference_pb2.MeasurePreferencesRequest(resample_count=_RATING_RESAMPLES, seed=self._seed)
        for pair, (first, second) in method.systems.items():
            choice = method.judgements[pair].choice
            request.pairs.add(prompt=pair, first=first, second=second, preference=_SHARES.get(choice))
        if not any(pair.HasField("preference") for pair in request.pairs):
            return  # there is nothing to rate
        response = statistics.alignment("MeasurePreferences", request)
        if response is not None:
            summary.pairs.strengths.add(method=name, preferences=response)

    def _correlate(self, labelled: Sequence[str], summary: Summary, statistics: Statistics) -> None:
        request = self._correlation_request(labelled)
        response = statistics.alignment("CorrelateScores", request)
        if response is None:
            return
        written = summary.pairs
        written.best_baseline, written.resample_count = best_baseline(response), RESAMPLES
        written.correlations.measures.extend(response.measures)
        written.correlations.differences.extend(roles_against(written.best_baseline, response))

    def _correlation_request(self, labelled: Sequence[str]) -> correlation_pb2.CorrelateScoresRequest:
        request = correlation_pb2.CorrelateScoresRequest(resample_count=RESAMPLES, seed=self._seed)
        for pair in labelled:
            found = {name: method.judgements.get(pair) for name, method in self._methods.items()}
            scores = {
                name: one.score for name, one in found.items() if one is not None and one.score is not None
            }
            request.items.add(human=_HUMAN[self._humans[pair]], scores=scores)
        return request
