"""Messages of MeasureAccuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNSPECIFIED, AbstainReason
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.accuracy.groups import ALL, Design, Group, Item, Subset
from services.alignment.accuracy.metrics import PolicyFigures
from services.alignment.codec.estimates import (
    decode_policy,
    decode_resampling,
    encode_estimate,
    encode_policy,
)
from services.alignment.workers import Checkpoint

_CHUNK = 10_000


def decode_accuracy_design(request: pb.MeasureAccuracyRequest, checkpoint: Checkpoint) -> Design:
    """Decodes the design.

    Raises:
        ServiceError: INVALID_ARGUMENT: a subset's name is taken, or an item has a prediction and also a
            reason for having none.
    """
    if violations := [*_taken_names(request), *_contradictions(request, checkpoint)]:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    subsets = [Subset(one.name, one.tag, list(dict.fromkeys(one.values))) for one in request.subsets]
    groupings = [list(grouping.tags) for grouping in request.groupings]
    named = [tag for grouping in groupings for tag in grouping] + [subset.tag for subset in subsets]
    tags = list(dict.fromkeys([*named, *filter(None, (request.macro_tag, request.cluster_tag))]))
    return Design(
        items=_items(request, tags, checkpoint),
        tags=tags,
        groupings=groupings,
        subsets=subsets,
        policy=decode_policy(request.abstention_policy),
        macro_tag=request.macro_tag,
        resampling=decode_resampling(request, checkpoint),
        cluster_tag=request.cluster_tag,
    )


def encode_groups(groups: Sequence[Group], policy: AbstentionPolicy) -> pb.MeasureAccuracyResponse:
    return pb.MeasureAccuracyResponse(
        groups=[_encode_group(group) for group in groups],
        abstention_policy=encode_policy(policy),
    )


def _items(request: pb.MeasureAccuracyRequest, tags: Sequence[str], checkpoint: Checkpoint) -> Counter[Item]:
    items: Counter[Item] = Counter()
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        reason = "" if item.predicted else AbstainReason.Name(item.abstain_reason)
        values = tuple(item.tags.get(tag, "") for tag in tags)
        items[Item(item.gold, item.predicted, reason, values)] += 1
    return items


def _taken_names(request: pb.MeasureAccuracyRequest) -> Iterator[Violation]:
    taken = {ALL}
    for index, subset in enumerate(request.subsets):
        if subset.name in taken:
            yield Violation(f"subsets[{index}].name", f"is {subset.name!r}, which is taken")
        taken.add(subset.name)


def _contradictions(request: pb.MeasureAccuracyRequest, checkpoint: Checkpoint) -> Iterator[Violation]:
    checkpoint()
    for index, item in enumerate(request.items):
        if item.predicted and item.abstain_reason != ABSTAIN_REASON_UNSPECIFIED:
            yield Violation(f"items[{index}].abstain_reason", "is set, though the item has a prediction")


def _encode_group(group: Group) -> pb.AccuracyGroup:
    counts = group.counts
    message = pb.AccuracyGroup(
        tags=group.tags,
        subset=group.subset,
        subset_values=group.subset_values,
        missing_values=group.missing_values,
        cluster_count=group.cluster_count,
        item_count=counts.items,
        answered_count=counts.answered,
        correct_count=counts.correct,
        abstentions=counts.abstentions,
        accuracy=encode_estimate(group.accuracy),
        accuracy_when_answered=encode_estimate(group.accuracy_when_answered),
        accuracy_abstentions_wrong=encode_estimate(group.accuracy_abstentions_wrong),
        majority_baseline=encode_estimate(counts.majority_baseline()),
        confusion=[
            pb.ConfusionCell(gold=gold, predicted=predicted, count=count)
            for (gold, predicted), count in sorted(counts.confusion.items())
        ],
        policies=[_encode_figures(one, macro=group.macro_accuracy is not None) for one in group.policies],
    )
    if group.macro_accuracy is not None:
        message.macro_accuracy.CopyFrom(encode_estimate(group.macro_accuracy))
    return message


def _encode_figures(figures: PolicyFigures, *, macro: bool) -> pb.PolicyFigures:
    message = pb.PolicyFigures(
        policy=encode_policy(figures.policy),
        accuracy=encode_estimate(figures.accuracy),
        balanced_accuracy=encode_estimate(figures.balanced_accuracy),
        macro_precision=encode_estimate(figures.macro_precision),
        macro_f1=encode_estimate(figures.macro_f1),
        mean_squared_error=encode_estimate(figures.mean_squared_error),
        cohen_kappa=encode_estimate(figures.cohen_kappa),
        labels=[
            pb.LabelFigures(
                label=one.label,
                precision=encode_estimate(one.precision),
                recall=encode_estimate(one.recall),
                f1=encode_estimate(one.f1),
            )
            for one in figures.labels
        ],
    )
    if macro:
        message.macro_mean_squared_error.CopyFrom(encode_estimate(figures.macro_mean_squared_error))
    return message
