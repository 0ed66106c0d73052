from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
from dramaturg.service.errors import ServiceError
from services.alignment.accuracy import metrics as accuracy
from services.alignment.accuracy.confusion import POLICIES
from services.alignment.accuracy.metrics import Design, Item, Subset, measure
from services.alignment.bootstrap import Resampling

REASON = "ABSTAIN_REASON_UNPARSABLE"
TAGS = ("format", "level")
BINARY = Subset("binary", "level", ("easy", "medium", "hard"))


def no_checkpoint() -> None:
    pass


def item(gold: str, predicted: str, *tags: str) -> Item:
    return Item(gold, predicted, "" if predicted else REASON, tags)


def measured(
    items: Sequence[Item],
    groupings: Sequence[Sequence[str]] = (),
    subsets: Sequence[Subset] = (),
    policy: pb.AbstentionPolicy.ValueType = pb.ABSTENTION_POLICY_EXCLUDED,
    macro_tag: str = "",
) -> list[pb.AccuracyGroup]:
    resampling = Resampling(0, 1, 0.95, no_checkpoint)
    return measure(Design(Counter(items), TAGS, groupings, subsets, policy, macro_tag, resampling))


# Scenarios of one format: the label is option 1, option 2 or either, the level is easy to hard or either.
PLANTED = [
    *[item("1", "1", "manual", "easy")] * 3,
    *[item("2", "1", "manual", "easy")] * 1,
    *[item("2", "2", "manual", "medium")] * 2,
    *[item("1", "", "manual", "medium")] * 1,
    *[item("1", "2", "manual", "hard")] * 2,
    *[item("either", "either", "manual", "either")] * 1,
    *[item("either", "2", "manual", "either")] * 2,
    *[item("1", "1", "machine", "easy")] * 5,
]


def test_groups_by_format_with_binary_and_all() -> None:
    groups = measured(PLANTED, groupings=[["format"]], subsets=[BINARY], macro_tag="level")
    assert [(dict(group.tags), group.subset) for group in groups] == [
        ({"format": "machine"}, "all"),
        ({"format": "machine"}, "binary"),
        ({"format": "manual"}, "all"),
        ({"format": "manual"}, "binary"),
    ]
    whole, binary = groups[2], groups[3]
    assert (whole.item_count, whole.answered_count, whole.correct_count) == (12, 11, 6)
    assert whole.accuracy.value == whole.accuracy_when_answered.value == pytest.approx(6 / 11)
    assert whole.accuracy_abstentions_wrong.value == pytest.approx(6 / 12)
    assert (binary.item_count, binary.answered_count, binary.correct_count) == (9, 8, 5)
    assert binary.accuracy.value == pytest.approx(5 / 8)
    assert binary.accuracy.interval_method == "wilson"
    # easy 3/4, medium 2/2 of those answered, hard 0/2, either 1/3
    assert whole.HasField("macro_accuracy")
    assert whole.macro_accuracy.value == pytest.approx((3 / 4 + 1 + 0 + 1 / 3) / 4)
    assert whole.macro_accuracy.count == 11
    assert dict(whole.abstentions) == {REASON: 1}


def test_the_policy_is_of_the_main_figure_and_the_macro_one() -> None:
    (group,) = measured(PLANTED[:12], policy=pb.ABSTENTION_POLICY_WRONG, macro_tag="level")
    assert group.accuracy.value == pytest.approx(6 / 12)
    assert group.accuracy_when_answered.value == pytest.approx(6 / 11)
    assert group.HasField("macro_accuracy")
    assert group.macro_accuracy.value == pytest.approx((3 / 4 + 2 / 3 + 0 + 1 / 3) / 4)


def test_baseline_and_confusion() -> None:
    (group,) = measured(PLANTED[:12])
    assert group.majority_baseline.value == pytest.approx(6 / 12)
    assert {(one.gold, one.predicted): one.count for one in group.confusion} == {
        ("1", "1"): 3,
        ("1", ""): 1,
        ("1", "2"): 2,
        ("2", "1"): 1,
        ("2", "2"): 2,
        ("either", "either"): 1,
        ("either", "2"): 2,
    }


def test_several_groupings_and_missing_tags() -> None:
    items = [item("1", "1", "manual", ""), item("1", "2", "", "easy")]
    groups = measured(items, groupings=[[], ["level", "format"]])
    assert [dict(group.tags) for group in groups] == [
        {},
        {"level": "", "format": "manual"},
        {"level": "easy", "format": ""},
    ]


def test_what_is_not_defined_says_why() -> None:
    abstained = [item("1", "", "manual", "easy"), item("2", "2", "manual", "hard")]
    (group,) = measured(abstained[:1])
    assert group.accuracy.undefined == "every item was abstained from"
    assert group.accuracy_abstentions_wrong.value == 0.0
    assert group.accuracy_abstentions_wrong.count == 1
    (group,) = measured(abstained, macro_tag="level")
    assert group.HasField("macro_accuracy")
    assert group.macro_accuracy.undefined == "every item whose level is 'easy' was abstained from"
    _, empty = measured(abstained, subsets=[Subset("none", "level", ("medium",))], macro_tag="level")
    assert empty.HasField("macro_accuracy")
    assert {
        empty.accuracy.undefined,
        empty.accuracy_when_answered.undefined,
        empty.accuracy_abstentions_wrong.undefined,
        empty.macro_accuracy.undefined,
        empty.majority_baseline.undefined,
    } == {"there are no items"}


def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "MAX_ROWS", 10)
    with pytest.raises(ServiceError, match="at most 10 are allowed") as refused:
        measured([item("1", "1", str(index), "") for index in range(9)], groupings=[["format"]])
    assert refused.value.reason_name == "ERROR_REASON_TOO_LARGE"


labels = st.sampled_from("xy")
items = st.lists(st.builds(item, labels, st.sampled_from(["x", "y", ""]), labels, labels), min_size=1)


@given(items, st.randoms(), st.sampled_from(POLICIES))
def test_order_does_not_matter_and_figures_are_bounded(
    some: list[Item], random: Random, policy: pb.AbstentionPolicy.ValueType
) -> None:
    first = measured(some, [["format"], []], [BINARY], policy, "level")
    shuffled = random.sample(some, len(some))
    assert measured(shuffled, [["format"], []], [BINARY], policy, "level") == first
    for group in first:
        wrong, answered = group.accuracy_abstentions_wrong, group.accuracy_when_answered
        if answered.HasField("value") and wrong.HasField("value"):
            assert 0 <= wrong.value <= answered.value <= 1
        for estimate in (wrong, answered, group.accuracy):
            assert estimate.HasField("value") != bool(estimate.undefined)
            if estimate.HasField("value"):
                assert estimate.HasField("lower")
                assert estimate.HasField("upper")
                assert 0 <= estimate.lower <= estimate.value <= estimate.upper <= 1
    assert sum(group.item_count for group in first if group.subset == "all") == 2 * len(some)


def test_squared_errors_end_at_the_largest_difference_of_labels() -> None:
    items = [item("1", answer, "manual", level) for level in "ab" for answer in "1000"]
    design = Design(
        Counter(items),
        TAGS,
        [],
        [],
        pb.ABSTENTION_POLICY_EXCLUDED,
        "level",
        Resampling(1, 1, 0.95, no_checkpoint),
    )
    found = measure(design)[0].policies[0].macro_mean_squared_error
    assert found.value == 0.75
    assert found.upper == 1
