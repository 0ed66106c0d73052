"""Weighted kappas and intraclass correlations: published and reference values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dramaturg.api.alignment.v1 import agreement_pb2 as pb
from services.alignment.agreement.coefficients import weighted_kappa

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

# Shrout and Fleiss 1979, table 2: six targets, four judges.
TARGETS = [(9, 2, 5, 8), (6, 1, 3, 2), (8, 4, 6, 8), (7, 1, 2, 6), (10, 5, 6, 9), (6, 2, 4, 7)]
FIRST = np.arange(40) % 5
SECOND = (FIRST + (np.arange(40) % 3 == 0) + 2 * (np.arange(40) % 11 == 0)) % 5


def request(
    rows: Sequence[tuple[int, ...]], distance: pb.LabelDistance.ValueType
) -> pb.MeasureAgreementRequest:
    message = pb.MeasureAgreementRequest(distance=distance, resample_count=1)
    for index, row in enumerate(rows):
        item = message.items.add(id=str(index))
        for annotator, label in enumerate(row):
            item.annotations.add(annotator=str(annotator), labels=[str(label)])
    return message


async def test_intraclass_correlations_of_the_published_example(alignment: AlignmentServiceAsyncStub) -> None:
    (group,) = (await alignment.MeasureAgreement(request(TARGETS, pb.LABEL_DISTANCE_INTERVAL))).groups
    found = [group.icc_one_way, group.icc_agreement, group.icc_consistency]
    assert [round(one.value, 2) for one in found] == [0.17, 0.29, 0.71]
    assert all(one.lower < one.value < one.upper for one in found)


async def test_names_have_no_intraclass_correlation(alignment: AlignmentServiceAsyncStub) -> None:
    (group,) = (await alignment.MeasureAgreement(request(TARGETS, pb.LABEL_DISTANCE_NOMINAL))).groups
    assert "ordinal or interval" in group.icc_one_way.undefined
    assert "ordinal or interval" in group.pairs[0].linear_kappa.undefined


async def test_missing_ratings_leave_it_undefined(alignment: AlignmentServiceAsyncStub) -> None:
    message = request([*TARGETS, (3, 4)], pb.LABEL_DISTANCE_INTERVAL)
    (group,) = (await alignment.MeasureAgreement(message)).groups
    assert "different annotators" in group.icc_agreement.undefined


@pytest.mark.parametrize(("power", "expected"), [(1, 0.53125), (2, 0.5125)])
def test_weighted_kappas_are_those_of_scikit_learn(power: int, expected: float) -> None:
    """cohen_kappa_score 1.9.1."""
    found = weighted_kappa(FIRST.astype(float), SECOND.astype(float), power)(np.ones((1, 40)))
    assert found[0, 0] == pytest.approx(expected, abs=1e-6)
