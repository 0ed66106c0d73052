"""Majority labels, clusters of items, and agreement against two libraries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import grpc
import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.metrics.agreement import AnnotationTask  # type: ignore[import-untyped]  # no stubs exist
from nltk.metrics.distance import masi_distance  # type: ignore[import-untyped]  # no stubs exist

from dramaturg.api.alignment.v1 import agreement_pb2 as pb
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from services.alignment.agreement.annotations import (
    AnnotatedItem,
    Annotations,
    Category,
    MajorityRule,
    list_majorities,
)
from services.alignment.agreement.measure import measure
from services.alignment.bootstrap import Resampling

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


def no_checkpoint() -> None:
    pass


def labelled(*labels: str) -> AnnotatedItem:
    return AnnotatedItem({f"r{place}": (label,) for place, label in enumerate(labels)})


def agreement(
    items: Sequence[AnnotatedItem],
    distance: pb.LabelDistance.ValueType = pb.LABEL_DISTANCE_NOMINAL,
    resamples: int = 0,
    rule: MajorityRule | None = None,
) -> pb.AgreementGroup:
    resampling = Resampling(resamples, 1, 0.95, no_checkpoint)
    rule = rule or MajorityRule()
    (group,) = measure(Annotations(items), distance, grouped=False, resampling=resampling, rule=rule)
    return group


ITEMS = [
    labelled("a", "a", "b"),
    labelled("a", "b"),
    labelled("a", "a", "b", "c"),
    labelled("c"),
    AnnotatedItem({}),
]


@pytest.mark.parametrize(
    ("rule", "labels"),
    [
        (MajorityRule(), ["a", "", "", "c", ""]),
        (MajorityRule(plurality=True), ["a", "", "a", "c", ""]),
        (MajorityRule(tie_label="b"), ["a", "b", "b", "c", ""]),
        (MajorityRule(plurality=True, tie_label="b"), ["a", "b", "a", "c", ""]),
    ],
)
def test_the_rule_decides_and_an_item_without_annotations_has_no_label(
    rule: MajorityRule, labels: list[str]
) -> None:
    majorities = list_majorities(Annotations(ITEMS), rule)
    assert [one.label for one in majorities] == labels
    assert [(one.votes, one.annotations) for one in majorities] == [(2, 3), (1, 2), (2, 4), (1, 1), (0, 0)]
    counted = agreement(ITEMS, rule=rule).majority_labels
    assert counted == {label: labels.count(label) for label in labels}


def test_a_tie_label_is_told_from_a_majority() -> None:
    majorities = list_majorities(Annotations(ITEMS[:2]), MajorityRule(tie_label="a"))
    assert [one.by_tie_label for one in majorities] == [False, True]


async def test_majorities_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasureAgreementRequest(
        distance=pb.LABEL_DISTANCE_ORDINAL,
        group_tag="criterion",
        majority_rule=pb.MAJORITY_RULE_PLURALITY,
        tie_label="1.0",
        list_majorities=True,
    )
    for name, labels in (("x", ["2", "2.0", "3"]), ("y", ["2", "3"])):
        item = request.items.add(id=name, tags={"criterion": "style"})
        for place, label in enumerate(labels):
            item.annotations.add(annotator=str(place), labels=[label])
    response = await alignment.MeasureAgreement(request)
    assert [(one.id, one.group, one.label, one.by_tie_label) for one in response.majorities] == [
        ("x", "style", "2", False),
        ("y", "style", "1", True),
    ]
    assert response.groups[0].krippendorff_alpha.total == 2
    request.tie_label = "low"
    with pytest.raises(grpc.aio.AioRpcError, match="tie_label is not a finite number"):
        await alignment.MeasureAgreement(request)


def items_of(table: Sequence[Sequence[Category | None]]) -> list[AnnotatedItem]:
    """From a row of labels for each annotator."""
    return [
        AnnotatedItem({f"r{place}": label for place, label in enumerate(column) if label is not None})
        for column in zip(*table, strict=True)
    ]


def same(estimate: Estimate, expected: float | None) -> bool:
    if not estimate.HasField("value") or expected is None or math.isnan(expected):
        return not estimate.HasField("value") and (expected is None or math.isnan(expected))
    return math.isclose(estimate.value, expected, abs_tol=1e-9)


LEVELS: Mapping[pb.LabelDistance.ValueType, Literal["nominal", "ordinal", "interval"]] = {
    pb.LABEL_DISTANCE_NOMINAL: "nominal",
    pb.LABEL_DISTANCE_ORDINAL: "ordinal",
    pb.LABEL_DISTANCE_INTERVAL: "interval",
}
numbers = st.lists(
    st.lists(st.one_of(st.none(), st.integers(1, 4).map(float)), min_size=6, max_size=6),
    min_size=2,
    max_size=4,
)


@given(numbers, st.sampled_from(list(LEVELS)))
@settings(max_examples=60)
def test_alpha_agrees_with_the_library_of_that_name(
    table: list[list[float | None]], distance: pb.LabelDistance.ValueType
) -> None:
    data = np.array([[math.nan if value is None else value for value in row] for row in table])
    try:
        with np.errstate(all="ignore"):
            expected = krippendorff.alpha(data, level_of_measurement=LEVELS[distance])
    except ValueError:
        expected = None
    pairable = [column[~np.isnan(column)] for column in data.T if (~np.isnan(column)).sum() > 1]
    if not pairable or len(np.unique(np.concatenate(pairable))) < 2:
        expected = None  # where all are of one kind the library says 1 or raises
    assert same(agreement(items_of(table), distance).krippendorff_alpha, expected)


letters = st.lists(st.lists(st.sampled_from("ab"), min_size=5, max_size=5), min_size=2, max_size=2)


@given(letters)
@settings(max_examples=40)
def test_cohens_kappa_agrees_with_nltk(table: list[list[str]]) -> None:
    rows = [
        (f"r{place}", str(item), label) for place, row in enumerate(table) for item, label in enumerate(row)
    ]
    one_label = len({label for row in table for label in row}) == 1  # where nltk says 1
    expected = None if one_label else AnnotationTask(rows).kappa()
    (pair,) = agreement(items_of([[(label,) for label in row] for row in table])).pairs
    assert same(pair.cohen_kappa, expected)


@given(
    st.lists(
        st.lists(st.frozensets(st.sampled_from("abc"), min_size=1), min_size=5, max_size=5),
        min_size=3,
        max_size=3,
    )
)
@settings(max_examples=40)
def test_alpha_of_sets_agrees_with_nltk(table: list[list[frozenset[str]]]) -> None:
    rows = [
        (f"r{place}", str(item), labels) for place, row in enumerate(table) for item, labels in enumerate(row)
    ]
    items = items_of([[tuple(sorted(labels)) for labels in row] for row in table])
    found = agreement(items, pb.LABEL_DISTANCE_MASI).krippendorff_alpha
    if len({labels for row in table for labels in row}) == 1:
        assert not found.HasField("value")
    else:
        # nltk rounds the three constants of MASI to two digits.
        assert found.value == pytest.approx(AnnotationTask(rows, distance=masi_distance).alpha(), abs=0.02)


def test_items_of_one_cluster_are_drawn_together() -> None:
    pattern: list[tuple[str, str]] = [("a", "a"), ("a", "b"), ("b", "b"), ("b", "b")]

    def items(clusters: Mapping[int, str]) -> list[AnnotatedItem]:
        return [
            AnnotatedItem({"r0": (one,), "r1": (two,)}, cluster=clusters.get(place, ""))
            for place in range(20)
            for one, two in pattern[place % 4 : place % 4 + 1] * 8
        ]

    alone = agreement(items({}), resamples=300)
    together = agreement(items({place: str(place) for place in range(20)}), resamples=300)
    for name in ("fleiss_kappa", "krippendorff_alpha", "gwet_ac1", "observed_agreement"):
        one, other = getattr(alone, name), getattr(together, name)
        assert one.value == pytest.approx(other.value)
        assert other.upper - other.lower > 1.5 * (one.upper - one.lower)
    one, other = alone.pairs[0].cohen_kappa, together.pairs[0].cohen_kappa
    assert one.HasField("lower")
    assert other.HasField("lower")
    assert other.lower < one.lower
