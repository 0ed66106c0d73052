"""Agreement of every method with human labels, measured by AlignmentService.

Accuracy is over the pairs whose better text people name; a tie against a preference is a wrong answer, and
abstentions are left out and counted. A correlation is between what speaks for the first text and 1, 0.5 or 0
for what people prefer, so it exists only where the better text does not always stand in the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dramaturg.api.alignment.v1 import accuracy_pb2, correlation_pb2
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.summaries.estimates import correlations as describe_correlations
from dramaturg.summaries.texts import BY_ROLES, Judgement, TextsAggregator

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

RESAMPLES = 2000
"""How many resamples the intervals of correlations rest on."""

_LABELS = {pb.PREFERENCE_FIRST: "first", pb.PREFERENCE_SECOND: "second", pb.PREFERENCE_TIE: "tie"}
_HUMAN = {pb.PREFERENCE_FIRST: 1.0, pb.PREFERENCE_SECOND: 0.0, pb.PREFERENCE_TIE: 0.5}
_GROUP = "group"
_LEAST = 2


async def measure(
    alignment: AlignmentServiceAsyncStub, aggregator: TextsAggregator, seed: int
) -> dict[str, Any]:
    """The figures of every method, as ``--json`` prints them.

    Args:
        alignment: AlignmentService.
        aggregator: What was said.
        seed: The seed of the resamples.

    Raises:
        grpc.aio.AioRpcError: It failed.
    """
    labelled = [line for line, pair in aggregator.pairs.items() if pair.human in _LABELS]
    figures: dict[str, Any] = {"labelled": len(labelled), "methods": {}, "by_tag": {}}
    if not labelled:
        return figures
    for method, judgements in aggregator.judgements.items():
        request = _accuracy_request(aggregator, labelled, judgements)
        for group in (await alignment.MeasureAccuracy(request)).groups:
            if group.tags:
                values = figures["by_tag"].setdefault(aggregator.group_by, {})
                values.setdefault(group.tags[_GROUP], {})[method] = _accuracy(group)
            else:
                figures["methods"][method] = _accuracy(group)
    if len(labelled) >= _LEAST:
        response = await alignment.CorrelateScores(_correlation_request(aggregator, labelled, seed))
        correlations = describe_correlations(response)
        for method, found in correlations["measures"].items():
            figures["methods"][method]["correlation"] = found
        baseline = best_baseline(response)
        if baseline:
            differences = roles_against(baseline, response)
            del response.differences[:]
            response.differences.extend(differences)
            tests = describe_correlations(response)["differences"]
            figures["williams"] = {"best_baseline": baseline, "tests": tests}
        else:
            figures["williams"] = None
        figures["resamples"], figures["resampling_seed"] = RESAMPLES, seed
    return figures


def is_baseline(method: str) -> bool:
    """Whether a method is there to be beaten: all but the roles are."""
    return not method.startswith(BY_ROLES)


def _accuracy_request(
    aggregator: TextsAggregator, labelled: Sequence[str], judgements: Mapping[str, Judgement]
) -> accuracy_pb2.MeasureAccuracyRequest:
    request = accuracy_pb2.MeasureAccuracyRequest(
        abstention_policy=accuracy_pb2.ABSTENTION_POLICY_EXCLUDED, groupings=[accuracy_pb2.Grouping()]
    )
    if aggregator.group_by:
        request.groupings.add(tags=[_GROUP])
    for line in labelled:
        pair = aggregator.pairs[line]
        # A sample that failed has no judgement at all; that, too, is an abstention.
        judgement = judgements.get(line, Judgement(pb.PREFERENCE_ABSTAIN))
        request.items.add(
            gold=_LABELS[pair.human],
            predicted=_LABELS.get(judgement.choice, ""),
            abstain_reason=judgement.reason,
            tags={_GROUP: pair.group},
        )
    return request


def _correlation_request(
    aggregator: TextsAggregator, labelled: Sequence[str], seed: int
) -> correlation_pb2.CorrelateScoresRequest:
    request = correlation_pb2.CorrelateScoresRequest(resample_count=RESAMPLES, seed=seed)
    for line in labelled:
        found = {method: judgements.get(line) for method, judgements in aggregator.judgements.items()}
        scores = {
            method: one.score for method, one in found.items() if one is not None and one.score is not None
        }
        request.items.add(human=_HUMAN[aggregator.pairs[line].human], scores=scores)
    return request


def _accuracy(group: accuracy_pb2.AccuracyGroup) -> dict[str, Any]:
    accuracy: Estimate = group.accuracy
    known = accuracy.HasField("value")
    return {
        "n": group.item_count,
        "answered": group.answered_count,
        "correct": group.correct_count,
        "coverage": group.answered_count / group.item_count if group.item_count else None,
        "accuracy": accuracy.value if known else None,
        "accuracy_interval": [accuracy.lower, accuracy.upper] if accuracy.HasField("lower") else None,
        "accuracy_abstentions_wrong": group.accuracy_abstentions_wrong.value,
        "abstentions": dict(sorted(group.abstentions.items())),
        **({} if known else {"undefined": accuracy.undefined}),
    }


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
