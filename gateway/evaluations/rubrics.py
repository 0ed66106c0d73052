"""The validation of rubrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.judge.scales import scale_problem
from dramaturg.judge.steps import is_blank
from dramaturg.service.errors import Violation
from gateway.evaluations.checks import check_distinct


def check_rubric(criteria: Sequence[RubricCriterion], field: str = "criteria") -> Iterator[Violation]:
    """Finds invalid and repeated criteria.

    Args:
        criteria: The rubric.
        field: The path of the rubric in its request.
    """
    yield from check_distinct(field, [one.id for one in criteria])
    for index, one in enumerate(criteria):
        path = f"{field}[{index}]"
        if not one.HasField("scale"):
            if is_blank(one.passes):
                yield Violation(f"{path}.passes", "must not be blank unless the criterion has a scale")
            continue
        for name in ("passes", "fails"):
            if getattr(one, name):
                yield Violation(f"{path}.{name}", "must be empty: the criterion has a scale")
        if is_blank(one.description) and not one.scale.anchors:
            yield Violation(f"{path}.description", "must not be blank: the scale has no anchors")
        if problem := scale_problem(one.scale):
            yield Violation(f"{path}.scale", problem)
