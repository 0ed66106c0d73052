from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.alignment.v1 import agreement_pb2 as pb
from dramaturg.service.errors import ServiceError
from services.alignment.agreement import measure as measuring
from services.alignment.agreement.annotations import AnnotatedItem, Annotations, Category, Patterns
from services.alignment.agreement.coefficients import (
    MAX_SETS,
    fleiss_kappa,
    gwet_ac1,
    masi_distances,
    observed_agreement,
)
from services.alignment.agreement.measure import measure
from services.alignment.bootstrap import Resampling, Statistic

Ratings = Sequence[Mapping[str, Category]]


def no_checkpoint() -> None:
    pass


def resampling(resamples: int = 0, seed: int = 1) -> Resampling:
    return Resampling(resamples, seed, 0.95, no_checkpoint)


def agreement(
    ratings: Ratings, distance: pb.LabelDistance.ValueType = pb.LABEL_DISTANCE_NOMINAL, resamples: int = 0
) -> pb.AgreementGroup:
    items = [AnnotatedItem(one) for one in ratings]
    (group,) = measure(Annotations(items), distance, grouped=False, resampling=resampling(resamples))
    return group


def from_counts(table: Sequence[Sequence[int]]) -> Ratings:
    """Items of which only is known how many annotators chose each category."""
    return [
        {
            f"r{place}": (str(code),)
            for place, code in enumerate(code for code, count in enumerate(row) for _ in range(count))
        }
        for row in table
    ]


def from_columns(annotators: Sequence[Sequence[int | None]]) -> Ratings:
    return [
        {f"r{index}": float(value) for index, value in enumerate(row) if value is not None}
        for row in zip(*annotators, strict=True)
    ]


# Ten subjects, fourteen raters, five categories: a widely printed worked example of Fleiss' kappa, .210.
TEN_SUBJECTS = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]
# Fleiss 1971, table 1: thirty patients, six psychiatrists, five diagnoses.
PATIENTS = [
    *([0, 0, 0, 6, 0], [0, 3, 0, 0, 3], [0, 1, 4, 0, 1], [0, 0, 0, 0, 6], [0, 3, 0, 3, 0], [2, 0, 4, 0, 0]),
    *([0, 0, 4, 0, 2], [2, 0, 3, 1, 0], [2, 0, 0, 4, 0], [0, 0, 0, 0, 6], [1, 0, 0, 5, 0], [1, 1, 0, 4, 0]),
    *([0, 3, 3, 0, 0], [1, 0, 0, 5, 0], [0, 2, 0, 3, 1], [0, 0, 5, 0, 1], [3, 0, 0, 1, 2], [5, 1, 0, 0, 0]),
    *([0, 2, 0, 4, 0], [1, 0, 2, 0, 3], [0, 0, 0, 0, 6], [0, 1, 0, 5, 0], [0, 2, 0, 1, 3], [2, 0, 0, 4, 0]),
    *([1, 0, 0, 4, 1], [0, 5, 0, 1, 0], [4, 0, 0, 0, 2], [0, 2, 0, 4, 0], [1, 0, 5, 0, 0], [0, 0, 0, 0, 6]),
]
# Krippendorff 2011, section C: twelve units, four observers, missing values; also Gwet's example of AC1.
FOUR_OBSERVERS = from_columns(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
)
# Three coders, fifteen units, missing values: the second worked example that implementations are held to.
THREE_CODERS = from_columns(
    [
        [None, None, None, None, None, 3, 4, 1, 2, 1, 1, 3, 3, None, 3],
        [1, None, 2, 1, 3, 3, 4, 3, None, None, None, None, None, None, None],
        [None, None, 2, 1, 3, 4, 4, None, 2, 1, 1, 3, 3, None, 4],
    ]
)


def fleiss_of_table(table: Sequence[Sequence[int]]) -> float:
    """Equations 1 to 7 of Fleiss 1971 in exact fractions."""
    raters, subjects = sum(table[0]), len(table)
    shares = [Fraction(sum(row[j] for row in table), raters * subjects) for j in range(len(table[0]))]
    observed = sum(
        Fraction(sum(count * (count - 1) for count in row), raters * (raters - 1)) for row in table
    ) / Fraction(subjects)
    expected = sum(share**2 for share in shares)
    return float((observed - expected) / (1 - expected))


@pytest.mark.parametrize(
    ("table", "printed"), [(TEN_SUBJECTS, 0.210), (PATIENTS, 0.430)], ids=["ten subjects", "Fleiss 1971"]
)
def test_fleiss_kappa_of_worked_examples(table: Sequence[Sequence[int]], printed: float) -> None:
    group = agreement(from_counts(table))
    assert group.fleiss_kappa.value == pytest.approx(fleiss_of_table(table), abs=1e-12)
    assert round(group.fleiss_kappa.value, 3) == printed
    assert group.fleiss_kappa.count == group.item_count == len(table)


def test_the_parts_of_the_worked_example() -> None:
    assert sum(map(sum, PATIENTS)) == 180
    assert [sum(row[j] for row in PATIENTS) for j in range(5)] == [26, 26, 30, 55, 43]
    assert round(agreement(from_counts(PATIENTS)).observed_agreement.value, 3) == 0.556


@pytest.mark.parametrize(
    ("both_yes", "first_yes", "second_yes", "both_no", "printed"),
    [(20, 5, 10, 15, 0.4), (45, 15, 25, 15, 0.1304), (25, 35, 5, 35, 0.2593)],
)
def test_cohen_kappa_of_worked_examples(
    both_yes: int, first_yes: int, second_yes: int, both_no: int, printed: float
) -> None:
    cells = [("y", "y")] * both_yes + [("y", "n")] * first_yes + [("n", "y")] * second_yes
    cells += [("n", "n")] * both_no
    (pair,) = agreement([{"b": (second,), "a": (first,)} for first, second in cells]).pairs
    assert (pair.first_annotator, pair.second_annotator) == ("a", "b")
    assert round(pair.cohen_kappa.value, 4) == printed
    assert pair.cohen_kappa.count == len(cells)


@pytest.mark.parametrize(
    ("ratings", "distance", "printed"),
    [
        (FOUR_OBSERVERS, pb.LABEL_DISTANCE_NOMINAL, 0.743),
        (FOUR_OBSERVERS, pb.LABEL_DISTANCE_ORDINAL, 0.815),
        (FOUR_OBSERVERS, pb.LABEL_DISTANCE_INTERVAL, 0.849),
        (THREE_CODERS, pb.LABEL_DISTANCE_NOMINAL, 0.691),
        (THREE_CODERS, pb.LABEL_DISTANCE_INTERVAL, 0.811),
    ],
)
def test_krippendorff_alpha_of_worked_examples(
    ratings: Ratings, distance: pb.LabelDistance.ValueType, printed: float
) -> None:
    assert round(agreement(ratings, distance).krippendorff_alpha.value, 3) == printed


def test_ac1_of_the_worked_example() -> None:
    group = agreement(FOUR_OBSERVERS, pb.LABEL_DISTANCE_INTERVAL)
    assert group.gwet_ac1.value == pytest.approx(0.77544, abs=5e-6)
    assert group.observed_agreement.value == pytest.approx(0.8181818, abs=5e-8)
    assert group.gwet_ac1.count == 12
    assert group.item_count == 11


def test_masi_distances_by_hand() -> None:
    sets = [("a",), ("a", "b"), ("b",), ("b", "c")]
    assert masi_distances(sets).tolist() == pytest.approx(
        np.array(
            [
                [0, 1 - 1 / 3, 1, 1],
                [1 - 1 / 3, 0, 1 - 1 / 3, 1 - 1 / 9],
                [1, 1 - 1 / 3, 0, 1 - 1 / 3],
                [1, 1 - 1 / 9, 1 - 1 / 3, 0],
            ]
        )
    )


def test_too_many_different_sets_are_refused() -> None:
    with pytest.raises(ServiceError, match=f"at most {MAX_SETS}") as refused:
        masi_distances([(str(index),) for index in range(MAX_SETS + 1)])
    assert refused.value.reason_name == "ERROR_REASON_TOO_LARGE"


def test_too_many_pairs_of_annotators_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MAX_PAIRS", 5)
    agreement([{"a": ("x",), "b": ("x",), "c": ("y",)}])
    with pytest.raises(ServiceError, match="6 pairs of annotators") as refused:
        agreement([dict.fromkeys("abcd", ("x",))])
    assert refused.value.metadata == {"limit": "5", "actual": "6"}


numbers = st.integers(0, 3).map(float)
sets = st.sets(st.sampled_from("abc"), min_size=1).map(lambda labels: tuple(sorted(labels)))


def ratings_of(category: st.SearchStrategy[Category]) -> st.SearchStrategy[Ratings]:
    return st.lists(st.dictionaries(st.sampled_from(["p", "q", "r", "s"]), category), min_size=1, max_size=12)


def alpha_by_definition(ratings: Ratings, distance: pb.LabelDistance.ValueType) -> float | None:
    """Coincidences pair by pair, distances as Krippendorff prints them."""
    pairable = [list(one.values()) for one in ratings if len(one) >= 2]
    values = sorted({value for one in pairable for value in one}, key=str)
    total = {value: sum(one.count(value) for one in pairable) for value in values}
    count = sum(total.values())

    def apart(a: Category, b: Category) -> float:
        if a == b:
            return 0.0
        if isinstance(a, float) and isinstance(b, float):
            if distance == pb.LABEL_DISTANCE_INTERVAL:
                return (a - b) ** 2
            low, high = sorted((a, b))
            between = sum(
                n for value, n in total.items() if isinstance(value, float) and low <= value <= high
            )
            return (between - (total[a] + total[b]) / 2) ** 2
        if distance == pb.LABEL_DISTANCE_NOMINAL:
            return 1.0
        first, second = set(a), set(b)  # type: ignore[arg-type]  # sets of labels
        shared = first & second
        factor = 2 / 3 if first < second or second < first else 1 / 3
        return 1 - len(shared) / len(first | second) * (factor if shared else 0)

    observed = sum(apart(a, b) / (len(one) - 1) for one in pairable for a, b in permutations(one, 2)) / max(
        count, 1
    )
    expected = sum(total[a] * total[b] * apart(a, b) for a in values for b in values)
    if not expected:
        return None
    return 1 - observed / (expected / (count * (count - 1)))


@given(ratings_of(numbers), st.sampled_from([pb.LABEL_DISTANCE_ORDINAL, pb.LABEL_DISTANCE_INTERVAL]))
def test_alpha_of_numbers_agrees_with_its_definition(
    ratings: Ratings, distance: pb.LabelDistance.ValueType
) -> None:
    check_alpha(ratings, distance)


@given(ratings_of(sets), st.sampled_from([pb.LABEL_DISTANCE_NOMINAL, pb.LABEL_DISTANCE_MASI]))
def test_alpha_of_sets_agrees_with_its_definition(
    ratings: Ratings, distance: pb.LabelDistance.ValueType
) -> None:
    check_alpha(ratings, distance)


def check_alpha(ratings: Ratings, distance: pb.LabelDistance.ValueType) -> None:
    expected, found = alpha_by_definition(ratings, distance), agreement(ratings, distance).krippendorff_alpha
    if expected is None:
        assert not found.HasField("value")
        assert found.undefined
    else:
        assert found.value == pytest.approx(expected, abs=1e-9)
        assert not found.undefined


@given(ratings_of(sets))
def test_ac1_and_observed_agreement_agree_with_their_definitions(ratings: Ratings) -> None:
    annotated = [list(one.values()) for one in ratings if one]
    pairable = [one for one in annotated if len(one) >= 2]
    scale = {value for one in annotated for value in one}
    group = agreement(ratings)
    if not pairable:
        assert not group.gwet_ac1.HasField("value")
        assert not group.observed_agreement.HasField("value")
        return
    observed = sum(
        sum(a == b for a, b in combinations(one, 2)) / math.comb(len(one), 2) for one in pairable
    ) / len(pairable)
    assert group.observed_agreement.value == pytest.approx(observed, abs=1e-12)
    if len(scale) == 1:
        assert group.gwet_ac1.undefined == "the scale has one label only"
        return
    usage = [sum(one.count(value) / len(one) for one in annotated) / len(annotated) for value in scale]
    expected = sum(share * (1 - share) for share in usage) / (len(scale) - 1)
    assert group.gwet_ac1.value == pytest.approx((observed - expected) / (1 - expected), abs=1e-9)


@given(ratings_of(sets), st.randoms())
def test_order_and_names_do_not_matter(ratings: Ratings, random: Random) -> None:
    shuffled = random.sample(list(ratings), len(ratings))
    first, second = agreement(ratings, resamples=50), agreement(shuffled, resamples=50)
    assert first == second


@given(ratings_of(numbers))
def test_figures_are_bounded(ratings: Ratings) -> None:
    group = agreement(ratings, pb.LABEL_DISTANCE_INTERVAL, resamples=20)
    figures = [group.fleiss_kappa, group.krippendorff_alpha, group.gwet_ac1, group.observed_agreement]
    for figure in [*figures, *(pair.cohen_kappa for pair in group.pairs)]:
        for value in (figure.value, figure.lower, figure.upper):
            assert math.isfinite(value)
            assert value <= 1
        assert figure.HasField("value") != bool(figure.undefined)
    assert sum(group.majority_labels.values()) == len(ratings)


@pytest.mark.parametrize("make", [observed_agreement, fleiss_kappa, gwet_ac1])
@given(data=st.data())
def test_a_weight_stands_for_a_repeated_item(
    make: Callable[[Patterns], Statistic], data: st.DataObject
) -> None:
    rows = data.draw(
        st.lists(st.lists(st.sampled_from("xyz"), min_size=3, max_size=3), min_size=1, max_size=6)
    )
    weights = data.draw(st.lists(st.integers(1, 4), min_size=len(rows), max_size=len(rows)))
    single = [{f"r{place}": (label,) for place, label in enumerate(row)} for row in rows]
    repeated = [one for one, weight in zip(single, weights, strict=True) for _ in range(weight)]
    patterns = Annotations([AnnotatedItem(one) for one in repeated]).of_group().patterns()
    as_rows = Annotations([AnnotatedItem(one) for one in single]).of_group().patterns()
    found = make(patterns)(patterns.multiplicities[np.newaxis].astype(float))
    row_of = {
        tuple(sorted(row)): index for index, row in enumerate(sorted({tuple(sorted(row)) for row in rows}))
    }
    gathered = np.zeros((1, len(row_of)))
    for row, weight in zip(rows, weights, strict=True):
        gathered[0, row_of[tuple(sorted(row))]] += weight
    assert make(as_rows)(gathered) == pytest.approx(found, nan_ok=True)


@pytest.mark.parametrize(
    ("ratings", "fleiss", "alpha", "ac1", "observed"),
    [
        pytest.param(
            [{"a": ("x",), "b": ("x",)}] * 3,
            "all annotations have the same label",
            "all annotations have the same label, where items have two annotations or more",
            "the scale has one label only",
            "",
            id="one class",
        ),
        pytest.param(
            [{"a": ("x",)}, {"a": ("y",)}],
            *["no item has two annotations"] * 4,
            id="one annotator",
        ),
        pytest.param([{}], *["no item has two annotations"] * 4, id="nothing"),
        pytest.param(
            [{"a": ("x",), "b": ("y",)}, {"a": ("x",), "b": ("x",), "c": ("y",)}],
            "items have from 2 to 3 annotations",
            "",
            "",
            "",
            id="missing annotations",
        ),
    ],
)
def test_what_is_not_defined_says_why(
    ratings: Ratings, fleiss: str, alpha: str, ac1: str, observed: str
) -> None:
    group = agreement(ratings, resamples=50)
    assert group.fleiss_kappa.undefined == fleiss
    assert group.krippendorff_alpha.undefined == alpha
    assert group.gwet_ac1.undefined == ac1
    assert group.observed_agreement.undefined == observed


def test_cohen_kappa_is_undefined_where_both_always_say_the_same() -> None:
    (pair,) = agreement([{"a": ("x",), "b": ("x",)}] * 4, resamples=50).pairs
    assert pair.cohen_kappa.undefined == "both gave every item the same label"
    assert pair.cohen_kappa.count == 4


def test_pairs_rest_on_the_items_that_both_judged() -> None:
    group = agreement(
        [
            {"a": ("x",), "b": ("x",)},
            {"a": ("y",), "b": ("y",), "c": ("y",)},
            {"a": ("x",), "c": ("x",)},
            {"d": ("x",)},
        ]
    )
    assert [
        (pair.first_annotator, pair.second_annotator, pair.cohen_kappa.count) for pair in group.pairs
    ] == [
        ("a", "b", 2),
        ("a", "c", 2),
        ("b", "c", 1),
    ]


def test_majorities_need_more_than_half() -> None:
    group = agreement(
        [
            {"a": ("x",), "b": ("x",), "c": ("y",)},
            {"a": ("x",), "b": ("y",)},
            {"a": ("y",), "b": ("x",), "c": ("z",), "d": ("x",)},
            {"a": ("p", "q"), "b": ("p", "q")},
            {"a": ("z",)},
            {},
        ]
    )
    assert dict(group.majority_labels) == {"x": 1, "": 3, "p|q": 1, "z": 1}


def test_numbers_are_one_category_however_they_were_written() -> None:
    group = agreement([{"a": 1.0, "b": 1.0}, {"a": 0.5, "b": 2.0}], pb.LABEL_DISTANCE_ORDINAL)
    assert dict(group.majority_labels) == {"1": 1, "": 1}


def test_groups_come_after_all_items() -> None:
    items = [
        AnnotatedItem({"a": ("x",), "b": ("x",)}, "story"),
        AnnotatedItem({"a": ("x",), "b": ("y",)}, "news"),
        AnnotatedItem({"a": ("y",), "b": ("y",)}, "news"),
    ]
    groups = measure(Annotations(items), pb.LABEL_DISTANCE_NOMINAL, grouped=True, resampling=resampling())
    assert [(group.group, group.item_count) for group in groups] == [("", 3), ("news", 2), ("story", 1)]
    assert [group.observed_agreement.value for group in groups] == [pytest.approx(2 / 3), 0.5, 1.0]


def test_items_without_the_tag_are_in_no_group() -> None:
    items = [AnnotatedItem({"a": ("x",), "b": ("x",)}, group) for group in ("", "news", "")]
    groups = measure(Annotations(items), pb.LABEL_DISTANCE_NOMINAL, grouped=True, resampling=resampling())
    assert [(group.group, group.item_count) for group in groups] == [("", 3), ("news", 1)]


def test_too_many_groups_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MAX_GROUPS", 2)
    items = [AnnotatedItem({"a": ("x",), "b": ("x",)}, group) for group in "pqr"]
    measure(Annotations(items), pb.LABEL_DISTANCE_NOMINAL, grouped=False, resampling=resampling())
    with pytest.raises(ServiceError, match="3 groups; at most 2"):
        measure(Annotations(items), pb.LABEL_DISTANCE_NOMINAL, grouped=True, resampling=resampling())


def test_intervals_hold_the_figure_and_need_no_seed() -> None:
    ratings = from_counts(PATIENTS)
    items = [AnnotatedItem(one) for one in ratings]
    groups = [
        measure(
            Annotations(items), pb.LABEL_DISTANCE_NOMINAL, grouped=False, resampling=resampling(1000, seed)
        )[0]
        for seed in (1, 1, 2)
    ]
    assert groups[0] == groups[1]
    assert groups[0] == groups[2]
    kappa = groups[0].fleiss_kappa
    assert kappa.HasField("lower")
    assert kappa.HasField("upper")
    assert kappa.HasField("value")
    assert 0.25 < kappa.lower < kappa.value < kappa.upper < 0.6


def test_extreme_numbers_do_not_overflow() -> None:
    group = agreement(
        [{"a": -1e308, "b": -1e308}, {"a": 1e308, "b": 1e308}, {"a": 0.0, "b": 1.0}],
        pb.LABEL_DISTANCE_INTERVAL,
    )
    assert group.krippendorff_alpha.value == pytest.approx(1.0)


def test_one_cluster_has_no_intervals() -> None:
    ratings: Ratings = [
        {"a": (first,), "b": (second,)} for first, second in zip("PPPPPFFFF", "PPPPFFFPP", strict=True)
    ]
    items = [AnnotatedItem(one, cluster="task") for one in ratings]
    (group,) = measure(
        Annotations(items), pb.LABEL_DISTANCE_NOMINAL, grouped=False, resampling=resampling(200)
    )
    estimates = [group.observed_agreement, group.fleiss_kappa, group.krippendorff_alpha, group.gwet_ac1]
    assert [one.HasField("value") for one in estimates] == [True] * 4
    assert not any(one.HasField("lower") or one.HasField("upper") or one.interval_method for one in estimates)


def test_agreement_without_exception_has_no_interval() -> None:
    group = agreement([{"a": (label,), "b": (label,)} for label in "PFPFPFPFPF"], resamples=200)
    assert (group.observed_agreement.value, group.fleiss_kappa.value) == (1.0, 1.0)
    assert not group.observed_agreement.HasField("lower")
    assert not group.fleiss_kappa.HasField("lower")


def test_kappas_paradox_is_explained() -> None:
    """Two annotators agree on 90 of 100 items, of which almost all have one label."""
    rare = [[2, 0]] * 90 + [[1, 1]] * 10
    found = agreement(from_counts(rare), resamples=10)
    (note,) = found.notes
    assert note.startswith(
        "alpha and kappas are low although annotators agree on 0.900 of the pairs: 0.950 of the labels are "
        "'0', so that chance alone would give an agreement of 0.905"
    )
    even = [[2, 0]] * 45 + [[0, 2]] * 45 + [[1, 1]] * 10
    assert not agreement(from_counts(even), resamples=10).notes
    assert not agreement(from_counts(rare), resamples=0).notes
