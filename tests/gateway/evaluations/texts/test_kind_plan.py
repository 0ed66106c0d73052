"""Requests that EvaluateTexts refuses."""

from __future__ import annotations

from typing import Any

import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, RubricCriterion
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale, ScaleAnchor
from dramaturg.client import ServiceError
from tests.support.texts import POLITE, judge, texts_client, texts_request, texts_result


def scale(lowest: int, highest: int, *anchors: int) -> RubricCriterion:
    listed = [ScaleAnchor(value=value, meaning="So.") for value in anchors]
    return RubricCriterion(
        id="clear", description="Clear.", scale=CriterionScale(lowest=lowest, highest=highest, anchors=listed)
    )


FIVE = CriterionScale(highest=5)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"task": Task()}, "task.goal"),
    ({"texts": []}, "texts"),
    ({"texts": [EvaluatedText(id=str(index)) for index in range(201)]}, "texts"),
    ({"texts": [EvaluatedText(id="a"), EvaluatedText(id="a")]}, "texts[1]"),
    ({"texts": [EvaluatedText(id="a", text="x" * 200_001)]}, "texts[0].text"),
    ({"criteria": []}, "criteria"),
    ({"criteria": [RubricCriterion(id=f"c{index}", passes="x") for index in range(51)]}, "criteria"),
    ({"criteria": [POLITE, POLITE]}, "criteria[1]"),
    ({"criteria": [RubricCriterion(id="Polite!", passes="x")]}, "criteria[0].id"),
    ({"criteria": [RubricCriterion(id="polite", passes="x" * 2501)]}, "criteria[0].passes"),
    ({"criteria": [RubricCriterion(id="polite", fails="Rude.")]}, "criteria[0].passes"),
    ({"criteria": [RubricCriterion(id="a", passes="x", scale=FIVE)]}, "criteria[0].passes"),
    ({"criteria": [RubricCriterion(id="a", scale=FIVE)]}, "criteria[0].description"),
    ({"criteria": [scale(5, 5)]}, "criteria[0].scale"),
    ({"criteria": [scale(1, 1001)]}, "criteria[0].scale.highest"),
    ({"criteria": [scale(1, 5, 6)]}, "criteria[0].scale"),
    ({"criteria": [scale(1, 5, 2, 2)]}, "criteria[0].scale"),
    ({"criteria": [scale(1, 100, *range(1, 22))]}, "criteria[0].scale.anchors"),
    ({"reference": "x" * 20_001}, "reference"),
    ({"judges": [JudgeSelection(role="critic")]}, "judges[0].role"),
]


@pytest.mark.parametrize(("fields", "path"), REFUSED, ids=[path for _, path in REFUSED])
async def test_a_request_outside_of_the_contract_names_the_field(fields: dict[str, Any], path: str) -> None:
    fake = judge()
    async with texts_client(fake) as client:
        with pytest.raises(ServiceError) as raised:
            await texts_result(client, texts_request(**fields))
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_FIELD_INVALID
    assert path in [one.field for one in raised.value.violations]
    assert not fake.requests
