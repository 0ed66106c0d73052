"""MeasurePairBias: place, length, kinship, and what happens when the order is turned round."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import grpc
import pytest
from scipy import stats

from dramaturg.api.alignment.v1 import bias_pb2 as pb
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNPARSABLE
from dramaturg.service.errors import from_rpc_error
from services.alignment.bias import measure

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

FIRST, SECOND, TIE = pb.PREFERENCE_FIRST, pb.PREFERENCE_SECOND, pb.PREFERENCE_TIE
UNSTATED = pb.PREFERENCE_UNSPECIFIED


def no_checkpoint() -> None:
    pass


def text(system: str = "a", family: str = "", length: float | None = None) -> pb.JudgedText:
    return pb.JudgedText(system=system, family=family, length=length)


def judged(
    side: pb.Preference.ValueType,
    human: pb.Preference.ValueType = UNSTATED,
    first: pb.JudgedText | None = None,
    second: pb.JudgedText | None = None,
    pair: str = "",
    group: str = "",
) -> pb.JudgedPair:
    texts = first or text("a"), second or text("b")
    return pb.JudgedPair(
        id=pair, first=texts[0], second=texts[1], judged=side, human=human, tags={"group": group}
    )


def bias(pairs: Sequence[pb.JudgedPair], family: str = "") -> pb.PairBiasGroup:
    return measure(pairs, family, "group", 0.95, no_checkpoint).groups[0]


def test_the_share_of_firsts_and_its_exact_test() -> None:
    found = bias([judged(FIRST)] * 15 + [judged(SECOND)] * 5 + [judged(TIE)] * 3 + [judged(UNSTATED)] * 2)
    assert (found.judgement_count, found.tie_count, found.abstained_count) == (25, 3, 2)
    assert (found.first_share.value, found.first_share.count, found.first_share.total) == (0.75, 20, 25)
    assert found.first_share_p == pytest.approx(stats.binomtest(15, 20).pvalue)


def test_a_judge_for_whom_place_decides_is_found_out_in_both_orders() -> None:
    pairs = []
    for index in range(40):
        texts = text("a"), text("b")
        for first, second in (texts, texts[::-1]):
            pairs.append(judged(FIRST, UNSTATED, first, second, str(index)))
    found = bias(pairs)
    assert found.first_share.value == 1.0
    assert (found.swaps.pair_count, found.swaps.first_both_count, found.swaps.second_both_count) == (
        40,
        40,
        0,
    )
    assert found.swaps.consistent_share.value == 0.0


def test_a_judge_for_whom_worth_decides_has_no_place() -> None:
    random = Random(2)
    pairs = []
    for index in range(60):
        better = random.choice("ab")
        for names in ("ab", "ba"):
            side = FIRST if names[0] == better else SECOND
            pairs.append(judged(side, side, text(names[0]), text(names[1]), str(index)))
    found = bias(pairs)
    assert found.first_share.value == 0.5
    assert found.position.excess.value == 0.0
    assert found.swaps.consistent_share.value == 1.0
    # Each pair says first once and second once: nothing varies, so there is no test.
    assert not found.HasField("first_share_p")


def test_ties_and_abstentions_in_one_order() -> None:
    a, b = text("a"), text("b")
    pairs = [
        *(judged(TIE, UNSTATED, a, b, "1"), judged(TIE, UNSTATED, b, a, "1")),
        *(judged(TIE, UNSTATED, a, b, "2"), judged(FIRST, UNSTATED, b, a, "2")),
        *(judged(UNSTATED, UNSTATED, a, b, "3"), judged(FIRST, UNSTATED, b, a, "3")),
        judged(FIRST, UNSTATED, a, b, "4"),
    ]
    swaps = bias(pairs).swaps
    assert (swaps.pair_count, swaps.tie_once_count) == (3, 1)
    assert (swaps.consistent_share.value, swaps.consistent_share.count, swaps.consistent_share.total) == (
        0.5,
        2,
        3,
    )


def test_length_beyond_what_people_see_in_it() -> None:
    """People name the longer of two in three pairs of four; the judge always does."""
    long, short = text("a", length=9), text("b", length=5)
    pairs = [judged(FIRST, SECOND if index % 4 == 0 else FIRST, long, short) for index in range(40)]
    pairs += [judged(SECOND, UNSTATED, short, long), judged(FIRST, FIRST, short, short), judged(FIRST, FIRST)]
    length = bias(pairs).length
    assert (length.judge_share.value, length.judge_share.count) == (1.0, 41)
    assert length.human_share.value == 0.75
    assert length.excess.value == pytest.approx(0.25)
    expected = stats.t.interval(0.95, 39, 0.25, stats.sem([1] * 10 + [0] * 30))
    assert (length.excess.lower, length.excess.upper) == pytest.approx(expected)


def test_the_bounds_of_the_excess_hold_where_nothing_differs_and_count_ids() -> None:
    """Without a gain the bound is Clopper and Pearson's; both orders of a pair are one item."""
    ours, theirs = text("a", "llama"), text("b", "qwen")
    alone = [judged(FIRST, FIRST, ours, theirs) for _ in range(40)]
    twice = [
        judged(*sides, *texts, str(index))
        for index in range(40)
        for sides, texts in (((FIRST, FIRST), (ours, theirs)), ((SECOND, SECOND), (theirs, ours)))
    ]
    for pairs in (alone, twice, [*twice, judged(TIE, FIRST, ours, theirs)]):
        own = bias(pairs, "llama").own_family
        assert own.excess.interval_withheld
        exact = 1 - 0.025 ** (1 / 40)
        assert (own.excess_lower_bound, own.excess_upper_bound) == pytest.approx((-exact, exact), rel=0.05)
    grouped = [judged(FIRST, FIRST, ours, theirs, group="g")]
    whole, group = measure(grouped, "llama", "group", 0.95, no_checkpoint).groups
    assert whole.own_family.HasField("excess_lower_bound")
    assert not group.own_family.HasField("excess_lower_bound")


def test_the_bounds_of_the_excess_name_either_side() -> None:
    ours, theirs = text("a", "llama"), text("b", "qwen")
    kind = [judged(FIRST, SECOND, ours, theirs)] * 30 + [judged(FIRST, FIRST, ours, theirs)] * 30
    against = [judged(SECOND, FIRST, ours, theirs)] * 30 + [judged(FIRST, FIRST, ours, theirs)] * 30
    for pairs, sign in ((kind, 1), (against, -1)):
        own = bias(pairs, "llama").own_family
        assert own.excess.value == sign * 0.5
        assert own.HasField("excess_lower_bound")
        assert own.HasField("excess_upper_bound")
        low, high = sorted((sign * own.excess_lower_bound, sign * own.excess_upper_bound))
        exact = stats.binomtest(30, 60).proportion_ci(0.95)
        assert (low, high) == pytest.approx((exact.low, exact.high), abs=0.06)
        assert low <= exact.low + 0.005


def test_the_own_family() -> None:
    ours, theirs, unknown = text("a", "llama"), text("b", "qwen"), text("c")
    pairs = [judged(FIRST, SECOND, ours, theirs)] * 6 + [judged(FIRST, FIRST, theirs, ours)] * 4
    pairs += [judged(FIRST, FIRST, ours, ours), judged(FIRST, FIRST, ours, unknown)]
    own = bias(pairs, "llama").own_family
    assert (own.judge_share.value, own.judge_share.count) == (0.6, 10)
    assert own.human_share.value == 0.0
    assert own.excess.value == 0.6
    assert bias(pairs).own_family.judge_share.undefined == "the judge's family is not named"


def test_without_people_there_is_no_excess() -> None:
    found = bias([judged(FIRST), judged(SECOND)])
    assert found.position.human_share.undefined == "there is no such choice"
    assert found.position.excess.undefined == "there is no choice of both judge and people"


def test_groups_by_name_after_all() -> None:
    pairs = [judged(FIRST, group="b"), judged(SECOND, group="a"), judged(TIE)]
    found = measure(pairs, "", "group", 0.95, no_checkpoint).groups
    assert [(one.group, one.judgement_count) for one in found] == [("", 3), ("a", 1), ("b", 1)]


async def test_bias_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasurePairBiasRequest(judge_family="llama", group_tag="task")
    for first, second, said in (("a", "b", pb.PREFERENCE_FIRST), ("b", "a", pb.PREFERENCE_SECOND)):
        pair = request.pairs.add(id="1", judged=said, human=pb.PREFERENCE_TIE, tags={"task": "x"})
        pair.first.system, pair.second.system = first, second
        pair.first.length, pair.second.length = (9, 3) if first == "a" else (3, 9)
    whole, task = (await alignment.MeasurePairBias(request)).groups
    assert (whole.group, task.group) == ("", "x")
    assert whole.swaps.consistent_share.value == 1.0
    assert (whole.length.judge_share.value, whole.length.judge_share.count) == (1.0, 2)
    assert not whole.length.human_share.HasField("value")


async def test_contradictory_pairs_are_all_named(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasurePairBiasRequest()
    for second in ("b", "c", "d"):
        pair = request.pairs.add(id="1", judged=pb.PREFERENCE_TIE)
        pair.first.system, pair.second.system = "a", second
    request.pairs[0].abstain_reason = ABSTAIN_REASON_UNPARSABLE
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await alignment.MeasurePairBias(request)
    assert [(one.field, one.description) for one in from_rpc_error(refused.value).violations] == [
        ("pairs[0].abstain_reason", "is set, though the pair was judged"),
        (
            "pairs[1].id",
            "is that of another judgement, which is not of the same systems in the other order",
        ),
        ("pairs[2].id", "has two judgements already, one for each order"),
    ]
