"""Messages of MeasureAccuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNSPECIFIED, AbstainReason
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.accuracy import ALL, AbstentionPolicy, Group, Item, Question, Subset
from services.alignment.codec.estimates import DEFAULT_LEVEL, encode_estimate
from services.alignment.workers import Checkpoint

_POLICIES = {
    pb.ABSTENTION_POLICY_UNSPECIFIED: AbstentionPolicy.EXCLUDED,
    pb.ABSTENTION_POLICY_EXCLUDED: AbstentionPolicy.EXCLUDED,
    pb.ABSTENTION_POLICY_WRONG: AbstentionPolicy.WRONG,
}
_CHUNK = 10_000


def decode_question(request: pb.MeasureAccuracyRequest, checkpoint: Checkpoint) -> Question:
    """Reads what is to be measured.

    Raises:
        ServiceError: INVALID_ARGUMENT: a subset's name is taken, or an item has a prediction and also a
            reason for having none.
    """
    if violations := [*_taken_names(request), *_contradictions(request, checkpoint)]:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    subsets = [Subset(one.name, one.tag, frozenset(one.values)) for one in request.subsets]
    groupings = [list(grouping.tags) for grouping in request.groupings]
    named = [tag for grouping in groupings for tag in grouping] + [subset.tag for subset in subsets]
    tags = list(dict.fromkeys([*named, *([request.macro_tag] if request.macro_tag else [])]))
    return Question(
        items=_items(request, tags, checkpoint),
        tags=tags,
        groupings=groupings,
        subsets=subsets,
        policy=_POLICIES[request.abstention_policy],
        macro_tag=request.macro_tag,
        level=request.confidence_level if request.HasField("confidence_level") else DEFAULT_LEVEL,
    )


def encode_groups(groups: Sequence[Group], policy: AbstentionPolicy) -> pb.MeasureAccuracyResponse:
    """Writes what was measured."""
    return pb.MeasureAccuracyResponse(
        groups=[_encode_group(group) for group in groups],
        abstention_policy=(
            pb.ABSTENTION_POLICY_WRONG if policy is AbstentionPolicy.WRONG else pb.ABSTENTION_POLICY_EXCLUDED
        ),
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
    tally = group.tally
    message = pb.AccuracyGroup(
        tags=group.tags,
        subset=group.subset,
        item_count=tally.items,
        answered_count=tally.answered,
        correct_count=tally.correct,
        abstentions=tally.abstentions,
        accuracy=encode_estimate(group.accuracy),
        accuracy_when_answered=encode_estimate(group.accuracy_when_answered),
        accuracy_abstentions_wrong=encode_estimate(group.accuracy_abstentions_wrong),
        majority_baseline=encode_estimate(tally.majority_baseline()),
        confusion=[
            pb.ConfusionCell(gold=gold, predicted=predicted, count=count)
            for (gold, predicted), count in sorted(tally.confusion.items())
        ],
    )
    if group.macro_accuracy is not None:
        message.macro_accuracy.CopyFrom(encode_estimate(group.macro_accuracy))
    return message
