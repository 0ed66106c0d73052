"""CompareRuns: tests, intervals, corrections and the gate against independent implementations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dramaturg.api.alignment.v1 import accuracy_pb2
from dramaturg.api.alignment.v1 import compare_pb2 as pb
from services.alignment.bootstrap import Resampling
from services.alignment.codec.systems import decode_runs
from services.alignment.comparison import paired
from services.alignment.comparison.compare import compare, gate, together
from services.alignment.comparison.paired import (
    BETTING,
    GAFFKE,
    betting,
    fewest_clusters,
    gaffke,
    log_capital,
)
from services.alignment.estimates import Estimate, benjamini_hochberg, holm

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

Value = bool | float | None
Table = dict[tuple[bool | None, bool | None], int]
"""How many items there are, by what the old and the new system got."""


def no_checkpoint() -> None:
    pass


RESAMPLING = Resampling(0, 1, 0.95, no_checkpoint)


def request(
    items: Sequence[Mapping[str, Value]],
    tags: Sequence[Mapping[str, str]] | None = None,
    **settings: float | str,
) -> pb.CompareRunsRequest:
    message = pb.CompareRunsRequest(baseline="old")
    for name, setting in settings.items():
        setattr(message, name, setting)
    for index, outcomes in enumerate(items):
        item = message.items.add(id=str(index), tags=tags[index] if tags else {})
        for system, value in outcomes.items():
            outcome = item.outcomes[system]
            if isinstance(value, bool):
                outcome.passed = value
            elif value is None:
                outcome.SetInParent()
            else:
                outcome.score = float(value)
    return message


def compared(
    items: Sequence[Mapping[str, Value]],
    tags: Sequence[Mapping[str, str]] | None = None,
    **settings: float | str,
) -> pb.CompareRunsResponse:
    return compare(*decode_runs(request(items, tags, **settings), no_checkpoint))


def verdicts(table: Table) -> list[dict[str, Value]]:
    """Items by what the old and the new system got."""
    return [{"old": old, "new": new} for (old, new), count in table.items() for _ in range(count)]


@pytest.mark.parametrize(
    ("better", "worse", "p"), [(0, 0, 1.0), (1, 0, 1.0), (5, 1, 0.21875), (10, 0, 0.001953125)]
)
def test_mcnemar_is_the_exact_binomial_test(better: int, worse: int, p: float) -> None:
    assert paired.mcnemar(better, worse).p == pytest.approx(p)
    n, k = better + worse, min(better, worse)
    tails = min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n)
    assert paired.mcnemar(worse, better).p == pytest.approx(tails)


@given(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=8))
@settings(max_examples=50)
def test_permutations_that_are_gone_through_are_those_of_the_definition(differences: list[float]) -> None:
    seen = abs(sum(differences))
    sums = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    expected = fmean(one >= seen - 1e-9 for one in sums)
    assert paired.sign_flips(np.array(differences), 99, RESAMPLING).p == pytest.approx(expected)


def test_drawn_permutations_agree_with_scipy() -> None:
    differences = np.random.default_rng(2).normal(0.25, 1, 60)
    found = paired.sign_flips(differences, 20_000, RESAMPLING)
    theirs = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(3)
    )
    assert found.test == "permutation (20000 drawn)"
    assert found.p == pytest.approx(theirs.pvalue, abs=0.01)
    assert paired.sign_flips(differences[::-1], 20_000, RESAMPLING) == found


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=8))
def test_holm_agrees_with_its_definition(values: list[float | None]) -> None:
    adjusted = holm(values)
    tested = [value for value in values if value is not None]
    for value, found in zip(values, adjusted, strict=True):
        if value is None:
            assert found is None
            continue
        smaller = sorted(one for one in tested if one <= value)
        steps = [(len(tested) - place) * one for place, one in enumerate(smaller)]
        assert found == pytest.approx(min(1.0, max(steps)))


def test_holm_of_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.integers(0, 5).map(float), min_size=2, max_size=30))
def test_the_interval_of_independent_scores_is_students(scores: list[float]) -> None:
    items: list[dict[str, Value]] = [{"old": 1.0, "new": score} for score in scores]
    (one,) = compared(items).comparisons
    difference, values = one.policies[0].difference, np.array(scores) - 1
    assert difference.value == pytest.approx(values.mean())
    if np.ptp(values) == 0:
        assert not difference.HasField("lower")
        return
    low, high = stats.t.interval(0.95, len(scores) - 1, values.mean(), stats.sem(values))
    assert (difference.lower, difference.upper) == pytest.approx((low, high))


def test_verdicts_of_a_worked_example() -> None:
    """100 items: both right 60, both wrong 20, only the new one right 15, only the old one 5."""
    table: Table = {(True, True): 60, (False, False): 20, (False, True): 15, (True, False): 5}
    (one,) = compared(verdicts(table)).comparisons
    excluded = one.policies[0]
    assert (excluded.better_count, excluded.worse_count, excluded.test) == (15, 5, "mcnemar-exact")
    assert excluded.p_value == pytest.approx(2 * sum(math.comb(20, i) for i in range(6)) / 2**20)
    assert excluded.difference.value == pytest.approx(0.10)
    up, down = 16 / 102, 6 / 102
    error = math.sqrt((up + down - (up - down) ** 2) / 102)
    assert excluded.difference.lower == pytest.approx(up - down - 1.959964 * error)
    assert excluded.minimum_detectable_effect == pytest.approx((1.959964 + 0.841621) * error)
    assert (excluded.baseline_mean.value, excluded.system_mean.value) == (0.65, 0.75)
    assert excluded.gate == pb.GATE_GO


def test_abstentions_under_three_policies() -> None:
    table: Table = {
        (True, True): 10,
        (True, None): 4,
        (None, True): 2,
        (None, None): 1,
        (False, True): 3,
    }
    (one,) = compared(verdicts(table)).comparisons
    excluded, wrong, worst = one.policies
    assert (one.item_count, one.baseline_abstained_count, one.abstained_count) == (20, 3, 5)
    assert (excluded.difference.count, excluded.difference.total) == (13, 20)
    assert excluded.difference.value == pytest.approx(3 / 13)
    assert wrong.difference.value == pytest.approx((2 + 3 - 4) / 20)
    assert worst.difference.value == pytest.approx((3 - 4 - 1) / 20)
    assert worst.baseline_mean.value == pytest.approx(17 / 20)


@given(
    st.lists(
        st.tuples(st.sampled_from([True, False, None]), st.sampled_from([True, False, None])),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=60)
def test_no_answers_make_the_difference_less_than_the_worst_case(
    pairs: list[tuple[bool | None, bool | None]],
) -> None:
    (one,) = compared([{"old": old, "new": new} for old, new in pairs]).comparisons
    choices = [[value] if value is not None else [True, False] for pair in pairs for value in pair]
    least = min((sum(filled[1::2]) - sum(filled[::2])) / len(pairs) for filled in product(*choices))
    assert one.policies[2].difference.value == pytest.approx(least)


def test_scores_need_a_scale_for_abstentions() -> None:
    items: list[dict[str, Value]] = [
        {"old": 3.0, "new": None},
        {"old": 2.0, "new": 4.0},
        {"old": 1.0, "new": 1.5},
    ]
    (one,) = compared(items).comparisons
    assert "names no lowest_score" in one.policies[1].difference.undefined
    assert one.policies[1].gate == pb.GATE_INCONCLUSIVE
    (one,) = compared(items, lowest_score=1.0, highest_score=5.0).comparisons
    assert one.policies[1].difference.value == pytest.approx((-2 + 2 + 0.5) / 3)


def test_all_abstained_is_undefined_and_inconclusive() -> None:
    found = compared(verdicts({(None, True): 3, (None, False): 2}))
    excluded = found.comparisons[0].policies[0]
    assert not excluded.HasField("p_value")
    assert excluded.difference.undefined == "no item was answered by both"
    assert found.gate == pb.GATE_INCONCLUSIVE


def test_items_of_a_cluster_count_as_little_as_they_are_worth() -> None:
    table: Table = {(True, True): 12, (False, True): 6, (True, False): 2}
    items = verdicts(table)
    alone = compared(items).comparisons[0].policies[0]
    fivefold = [item for item in items for _ in range(5)]
    tags = [{"task": str(index // 5)} for index in range(100)]
    together_ = compared(fivefold, tags, cluster_tag="task").comparisons[0]
    excluded = together_.policies[0]
    assert together_.cluster_count == 20
    assert excluded.test == "permutation-exact"
    assert excluded.p_value == pytest.approx(alone.p_value)
    naive = compared(fivefold).comparisons[0].policies[0]
    assert naive.HasField("p_value")
    assert excluded.HasField("p_value")
    assert naive.p_value < excluded.p_value / 10
    assert excluded.difference.HasField("upper")
    assert excluded.difference.HasField("lower")
    sums = np.array([0] * 12 + [5] * 6 + [-5] * 2) / 5
    low, high = stats.t.interval(0.95, 19, 0.2, stats.sem(sums))
    assert excluded.difference.value == pytest.approx(0.2)
    assert (excluded.difference.lower, excluded.difference.upper) == pytest.approx((low, high))


def test_runs_that_never_differ_need_enough_items_to_go() -> None:
    few, many = (compared(verdicts({(True, True): count}), margin=0.05).gate for count in (20, 200))
    assert (few, many) == (pb.GATE_INCONCLUSIVE, pb.GATE_GO)
    clustered = compared(
        verdicts({(True, True): 200}),
        [{"task": str(index // 2)} for index in range(200)],
        cluster_tag="task",
        margin=0.05,
    )
    assert clustered.gate == pb.GATE_GO


def test_equal_differences_without_a_scale_have_no_interval() -> None:
    found = compared([{"old": 1.0, "new": 2.0}] * 5)
    assert not found.comparisons[0].policies[0].difference.HasField("lower")
    assert found.gate == pb.GATE_INCONCLUSIVE
    assert "names neither largest_task_loss nor lowest_score and highest_score" in found.gate_reasons[0]


@pytest.mark.parametrize(
    ("difference", "gate"),
    [(-3.0, pb.GATE_NO_GO), (-0.5, pb.GATE_GO), (0.0, pb.GATE_GO), (1.0, pb.GATE_GO)],
)
def test_equal_differences_on_a_scale_are_decided(difference: float, gate: pb.Gate.ValueType) -> None:
    items = [{"old": 5.0, "new": 5.0 + difference}] * 1000
    found = compared(items, margin=1.0, lowest_score=1, highest_score=10)
    estimate = found.comparisons[0].policies[0].difference
    assert found.gate == gate
    assert estimate.HasField("lower")
    assert estimate.HasField("upper")
    # At most 0.37 % of the population differ, by at most the width of the scale.
    assert difference - 0.05 < estimate.lower < difference < estimate.upper < difference + 0.05


def test_few_equal_differences_do_not_exclude_a_loss() -> None:
    found = compared([{"old": 5.0, "new": 5.0}] * 10, margin=1.0, lowest_score=1, highest_score=10)
    assert found.gate == pb.GATE_INCONCLUSIVE


def test_verdicts_that_are_all_lost_in_every_cluster_are_no_go() -> None:
    tags = [{"task": str(index // 2)} for index in range(80)]
    found = compared(verdicts({(True, False): 80}), tags, cluster_tag="task", margin=0.05)
    assert found.gate == pb.GATE_NO_GO


def test_equal_losses_beyond_the_margin_are_no_go_without_a_scale() -> None:
    assert compared([{"old": 5.0, "new": 2.0}] * 1000, margin=1.0).gate == pb.GATE_NO_GO
    assert compared([{"old": 5.0, "new": 4.5}] * 1000, margin=1.0).gate == pb.GATE_INCONCLUSIVE


@pytest.mark.parametrize(("lost", "items"), [(0, 12), (1, 40), (5, 40), (30, 200)])
def test_the_bounds_of_losses_alone_are_those_of_clopper_and_pearson(lost: int, items: int) -> None:
    differences = np.array([-1.0] * lost + [0.0] * (items - lost))
    lower = gaffke(differences, np.ones(items), 1.0, 1.0, RESAMPLING, 0.025)
    exact = stats.binomtest(lost, items).proportion_ci(0.95, "exact").high
    assert lower == pytest.approx(-exact, rel=0.03)
    (one,) = compared(verdicts({(True, False): lost, (True, True): items - lost})).comparisons
    assert one.policies[0].lower_bound_method == GAFFKE
    assert one.policies[0].lower_bound == pytest.approx(lower, rel=0.02)


def seven_verdicts(changed: Mapping[int, tuple[bool, bool]], tasks: int = 50) -> Any:
    """Verdicts of tasks of seven each, all passed but for the first of the tasks that changed."""
    items: list[dict[str, Value]] = [{"old": True, "new": True} for _ in range(tasks * 7)]
    for task, (old, new) in changed.items():
        items[task * 7] = {"old": old, "new": new}
    return items, [{"task": str(index // 7)} for index in range(tasks * 7)]


def test_one_loss_in_few_clusters_does_not_go() -> None:
    items, tags = seven_verdicts({0: (True, False)})
    found = compared(items, tags, cluster_tag="task", margin=0.02)
    assert found.gate == pb.GATE_INCONCLUSIVE
    assert "GO unless whole clusters are lost; GO needs at least 183 clusters" in found.gate_reasons[0]
    assert compared(items, margin=0.02).gate == pb.GATE_GO


@pytest.mark.parametrize(("margin", "fewest"), [(0.02, 183), (0.05, 72), (0.1, 36)])
def test_the_fewest_clusters_that_can_go(margin: float, fewest: int) -> None:
    assert fewest_clusters(margin, 1.0, 0.025) == fewest
    bounds = [-stats.binomtest(0, count).proportion_ci(0.95, "exact").high for count in (fewest, fewest - 1)]
    assert bounds[0] >= -margin > bounds[1]
    assert fewest_clusters(margin, 0.5, 0.025) == math.ceil(math.log(0.025) / math.log(1 - 2 * margin))
    assert fewest_clusters(0.0, 1.0, 0.025) is None
    assert fewest_clusters(0.5, 0.25, 0.025) == 1


def test_a_stated_largest_loss_gives_power_and_stands_in_the_reason() -> None:
    items, tags = seven_verdicts({0: (True, False), 1: (False, True)})
    whole = compared(items, tags, cluster_tag="task", margin=0.05)
    assert whole.gate == pb.GATE_INCONCLUSIVE
    assert "where one cluster may lose 1, the margin 0.05" in whole.gate_reasons[0]
    third = compared(items, tags, cluster_tag="task", margin=0.05, largest_task_loss=0.3)
    assert third.gate == pb.GATE_GO
    assert "where one cluster may lose 0.3" in third.gate_reasons[0]


def test_a_cluster_that_loses_more_than_is_assumed_raises_the_assumption() -> None:
    sums, sizes = np.array([0.0] * 60 + [-7.0]), np.full(61, 7.0)
    assumed, scale = (gaffke(sums, sizes, 7.0, loss, RESAMPLING, 0.025) for loss in (0.1, 1.0))
    assert assumed == scale


def test_a_stated_largest_loss_bounds_scores_without_a_scale() -> None:
    items: list[dict[str, Value]] = [{"old": 5.0, "new": 5.0 + (index % 3 - 1) / 10} for index in range(60)]
    assert compared(items, margin=0.5).gate == pb.GATE_INCONCLUSIVE
    found = compared(items, margin=0.5, largest_task_loss=4.0)
    assert found.gate == pb.GATE_GO
    assert found.comparisons[0].policies[0].difference.interval_method == "paired-t"


def test_a_difference_whose_interval_is_within_the_margin_is_no_no_go() -> None:
    """It is shown to be worse, by less than the margin; only tasks that were not seen say otherwise."""
    items, tags = seven_verdicts(dict.fromkeys(range(10), (True, False)))
    found = compared(items, tags, cluster_tag="task", margin=0.05)
    part = found.comparisons[0].policies[0]
    assert part.HasField("adjusted_p_value")
    assert part.adjusted_p_value < 0.01
    assert found.gate == pb.GATE_INCONCLUSIVE
    assert "GO unless whole clusters are lost" in found.gate_reasons[0]


def test_policies_of_abstention_that_disagree_are_named() -> None:
    """The baseline abstains where it would fail or pass; as failures that is a gain of the system."""
    found = compared(verdicts({(None, True): 100, (True, False): 80, (True, True): 320}), margin=0.05)
    assert found.gate == pb.GATE_NO_GO
    assert "by what an abstention counts as: left out no-go, a wrong answer go" in found.gate_reasons[0]


def test_sparse_scores_without_a_scale_have_no_bound() -> None:
    scores: list[dict[str, Value]] = [{"old": 5.0, "new": 4.0 if index < 3 else 5.0} for index in range(63)]
    without = compared(scores, margin=0.5)
    assert without.gate == pb.GATE_INCONCLUSIVE
    assert not without.comparisons[0].policies[0].HasField("lower_bound")
    assert compared(scores, margin=0.5, lowest_score=1, highest_score=5).gate == pb.GATE_GO


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(1, 4)), min_size=1, max_size=12),
    st.sampled_from([0.001, 0.025, 0.2]),
)
@settings(max_examples=60)
def test_bounds_are_below_the_mean_and_above_the_largest_loss(
    clusters: list[tuple[int, int]], error: float
) -> None:
    sizes = np.array([size for _, size in clusters], float)
    sums = np.array([value for value, _ in clusters], float) / 4 * sizes
    mean = sums.sum() / sizes.sum()
    for bound in (
        gaffke(sums, sizes, sizes.max(), 1.0, RESAMPLING, error),
        betting(sums, sizes, sizes.max(), 1.0, no_checkpoint, error),
    ):
        assert -1 <= bound <= mean + 1e-9
    stricter = betting(sums, sizes, sizes.max(), 1.0, no_checkpoint, error / 2)
    assert stricter <= betting(sums, sizes, sizes.max(), 1.0, no_checkpoint, error) + 1e-9
    order = np.random.default_rng(1).permutation(sums.size)
    assert betting(sums[order], sizes[order], sizes.max(), 1.0, no_checkpoint, error) == pytest.approx(
        betting(sums, sizes, sizes.max(), 1.0, no_checkpoint, error)
    )


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8), st.integers(-3, 3))
def test_the_capital_of_a_bet_is_the_mean_over_its_fractions(values: list[int], mean: int) -> None:
    differences = np.array(values) / 4
    worth = (differences - mean / 4) / (1 + mean / 4)
    expected = fmean(float(np.prod(1 + (place + 0.5) / 32 * worth)) for place in range(32))
    found = log_capital(differences, np.ones(len(values)), 1.0, 1.0, mean / 4)
    assert math.exp(found) == pytest.approx(expected)


def test_the_unseen_cluster_is_as_large_as_any_of_the_request() -> None:
    """A task of nine verdicts of which eight abstained still says how large tasks are."""
    items: list[dict[str, Value]] = [{"old": True, "new": True} for _ in range(100)]
    large: list[dict[str, Value]] = [{"old": value, "new": value} for value in [None] * 8 + [True]]
    tags = [{"task": str(index)} for index in range(100)] + [{"task": "large"}] * 9
    small, whole = (
        compared(rows, tags[: len(rows)], cluster_tag="task").comparisons[0].policies[0]
        for rows in (items, items + large)
    )
    assert small.HasField("lower_bound")
    assert whole.HasField("lower_bound")
    assert whole.lower_bound < 5 * small.lower_bound


def test_bounds_for_all_looks_are_below_those_for_one() -> None:
    items, tags = seven_verdicts({0: (True, False), 1: (False, True)}, tasks=200)
    once, always = (
        compared(items, tags, cluster_tag="task", margin=0.05, anytime=anytime).comparisons[0].policies[0]
        for anytime in (False, True)
    )
    assert once.HasField("lower_bound")
    assert always.HasField("lower_bound")
    assert always.lower_bound < once.lower_bound
    assert (always.gate, always.test, always.lower_bound_method) == (pb.GATE_GO, BETTING, BETTING)
    assert always.difference.interval_method == BETTING
    assert always.difference.lower == always.lower_bound
    lost = verdicts({(True, False): 30, (True, True): 100})
    assert compared(lost, margin=0.05, anytime=True).gate == pb.GATE_NO_GO


def test_go_of_several_systems_is_corrected_for_their_number() -> None:
    """Of nine systems one passes at the level alone; another passes at a ninth of the error rate."""
    table = {f"s{place}": 40 for place in range(7)} | {"good": 0, "near": 11}
    items: list[dict[str, Value]] = [
        {"old": True, **{name: index >= lost for name, lost in table.items()}} for index in range(400)
    ]
    found = compared(items, margin=0.05)
    parts = {one.system: one.policies[0] for one in found.comparisons}
    assert (parts["good"].gate, parts["good"].corrected_gate) == (pb.GATE_GO, pb.GATE_GO)
    assert (parts["near"].gate, parts["near"].corrected_gate) == (pb.GATE_GO, pb.GATE_INCONCLUSIVE)
    assert parts["s0"].corrected_gate == pb.GATE_NO_GO
    alone = compared([{"old": one["old"], "new": one["near"]} for one in items], margin=0.05)
    assert alone.comparisons[0].policies[0].corrected_gate == pb.GATE_GO


@pytest.mark.slow
def test_any_false_go_of_ten_systems_is_rare() -> None:
    """Ten systems that lose as many of 100 verdicts as the margin permits."""
    generator, rounds, corrected, alone = np.random.default_rng(4), 400, 0, 0
    for _ in range(rounds):
        kept = generator.random((10, 100)) >= 0.1
        items: list[dict[str, Value]] = [
            {"old": True, **{f"s{place}": bool(kept[place, index]) for place in range(10)}}
            for index in range(100)
        ]
        parts = [one.policies[0] for one in compared(items, margin=0.1, permutation_count=1).comparisons]
        corrected += any(part.corrected_gate == pb.GATE_GO for part in parts)
        alone += any(part.gate == pb.GATE_GO for part in parts)
    # Three standard errors above .025.
    assert corrected / rounds <= 0.025 + 3 * (0.025 * 0.975 / rounds) ** 0.5
    assert alone > 4 * corrected


def test_groups_that_are_not_decided_cost_no_power() -> None:
    items = verdicts({(True, False): 12, (False, True): 2, (True, True): 100})
    tags = [{"criterion": str(index % 7)} for index in range(len(items))]
    found = compared(items, tags, group_tag="criterion")
    whole, *groups = found.comparisons
    assert whole.decided
    assert not any(one.decided for one in groups)
    assert whole.policies[0].adjusted_p_value == whole.policies[0].p_value
    ps = [one.policies[0].p_value for one in groups]
    assert [one.policies[0].adjusted_p_value for one in groups] == holm(ps)
    assert [one.policies[0].corrected_gate for one in groups] == [pb.GATE_UNSPECIFIED] * 7


def test_benjamini_hochberg_agrees_with_scipy() -> None:
    values = [0.01, 0.04, 0.03, 0.005, 0.5]
    assert benjamini_hochberg(values) == pytest.approx(stats.false_discovery_control(values))
    assert benjamini_hochberg([None, 0.2]) == [None, 0.2]


@pytest.mark.parametrize(
    ("bound", "lower", "p", "expected"),
    [
        (-0.04, -0.03, 0.6, pb.GATE_GO),
        (-0.05, -0.06, 0.001, pb.GATE_GO),
        (-0.06, -0.04, 0.001, pb.GATE_INCONCLUSIVE),
        (-0.06, -0.09, 0.001, pb.GATE_NO_GO),
        (-0.06, -0.09, 0.2, pb.GATE_INCONCLUSIVE),
        (None, -0.04, 0.001, pb.GATE_INCONCLUSIVE),
        (None, -0.09, 0.001, pb.GATE_NO_GO),
    ],
)
def test_the_gate(bound: float | None, lower: float, p: float, expected: pb.Gate.ValueType) -> None:
    difference = Estimate(lower / 2, 100, lower, 0.1).encode()
    part = pb.PolicyComparison(difference=difference, adjusted_p_value=p, lower_bound=bound)
    assert gate(part, 0.05, 0.95) == expected


def test_the_gate_of_several() -> None:
    assert together([pb.GATE_GO, pb.GATE_NO_GO, pb.GATE_INCONCLUSIVE]) == pb.GATE_NO_GO
    assert together([pb.GATE_GO, pb.GATE_INCONCLUSIVE]) == pb.GATE_INCONCLUSIVE
    assert together([]) == pb.GATE_INCONCLUSIVE


def test_the_gate_goes_by_all_items_or_by_each_group() -> None:
    items = verdicts({(True, True): 300}) + verdicts({(True, False): 20, (True, True): 20})
    tags = [{"criterion": "a"}] * 300 + [{"criterion": "b"}] * 40
    whole = compared(items, tags, group_tag="criterion", margin=0.1)
    each = compared(items, tags, group_tag="criterion", margin=0.1, gate_scope=pb.GATE_SCOPE_EVERY_GROUP)
    assert (whole.gate, each.gate) == (pb.GATE_GO, pb.GATE_NO_GO)
    assert [one.group for one in whole.comparisons] == ["", "a", "b"]
    assert len(each.gate_reasons) == 2
    assert [one.decided for one in each.comparisons] == [False, True, True]
    ps = [one.policies[0].adjusted_p_value for one in each.comparisons[1:]]
    assert ps == holm([one.policies[0].p_value for one in each.comparisons[1:]])


async def test_comparison_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    items: list[dict[str, Value]] = [
        {"old": float(index % 5), "new": float(index % 5 + index % 3), "third": 1.0 - index % 2}
        for index in range(40)
    ]
    message = request(
        items,
        margin=0.5,
        resample_count=200,
        abstention_policy=accuracy_pb2.ABSTENTION_POLICY_WRONG,
        lowest_score=0.0,
        highest_score=6.0,
    )
    for index, item in enumerate(message.items):
        item.human = index % 5 + index % 7
    response = await alignment.CompareRuns(message)
    assert [one.system for one in response.comparisons] == ["new", "third"]
    assert response.abstention_policy == accuracy_pb2.ABSTENTION_POLICY_WRONG
    assert (response.gate, response.largest_task_loss) == (pb.GATE_NO_GO, 6)
    first = response.comparisons[0]
    assert {first.correlation.first_measure, first.correlation.second_measure} == {"new", "old"}
    assert first.correlation.HasField("williams_p")
    assert first.policies[0].difference.value == pytest.approx(39 / 40)
    assert first.policies[0].gate == pb.GATE_GO


@pytest.mark.parametrize(
    ("items", "settings", "field"),
    [
        ([{"new": True}], {}, "baseline"),
        ([{"old": True}], {}, "items"),
        ([{"old": True, "new": 1.0}], {}, "items[0].outcomes['"),
        ([{"old": 1.0, "new": 1.0}], {"lowest_score": 1.0, "highest_score": 1.0}, "highest_score"),
        ([{"old": 1.0, "new": math.inf}], {}, "items[0]"),
        ([{"old": True, "new": True}], {"margin": 5.0}, "margin"),
        ([{"old": 1.0, "new": 1.0}], {"margin": 4.0, "lowest_score": 1.0, "highest_score": 5.0}, "margin"),
    ],
)
async def test_requests_that_cannot_be_compared_are_refused(
    alignment: AlignmentServiceAsyncStub,
    items: list[dict[str, Value]],
    settings: dict[str, Any],
    field: str,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=field.replace("[", r"\[")) as refused:
        await alignment.CompareRuns(request(items, **settings))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
def test_intervals_of_differences_cover_at_their_rate() -> None:
    generator = np.random.default_rng(11)
    covered = {"verdicts": 0, "clusters": 0}
    rounds = 1000
    for _ in range(rounds):
        old = generator.random(150) < 0.7
        new = np.where(generator.random(150) < 0.25, generator.random(150) < 0.5, old)
        truth = 0.25 * (0.5 - 0.7)
        up, down = int((new & ~old).sum()), int((old & ~new).sum())
        found = paired.difference_of_shares(up, down, 150, 0.95)
        assert found.lower is not None
        assert found.upper is not None
        covered["verdicts"] += found.lower <= truth <= found.upper
        effects = generator.normal(0.1, 0.2, 40)
        sizes = generator.integers(1, 6, 40).astype(float)
        sums = np.array([generator.normal(e, 0.5, int(n)).sum() for e, n in zip(effects, sizes, strict=True)])
        mean = paired.mean(sums, sizes, 0.95, method="t", undefined="")
        assert mean.lower is not None
        assert mean.upper is not None
        covered["clusters"] += mean.lower <= 0.1 <= mean.upper
    for count in covered.values():
        assert 0.93 <= count / rounds <= 0.97
