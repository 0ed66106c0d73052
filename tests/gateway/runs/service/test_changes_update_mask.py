"""An update sets the fields that it names and leaves all others."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget, RunLimits, RunSpec
from dramaturg.service.errors import ServiceError
from gateway.runs.service.changes import update_paths, updated_spec

SPEC = RunSpec(
    display_name="a run",
    limits=RunLimits(max_concurrent_samples=7, priority=3),
    budget=RunBudget(max_cost_usd=5, max_token_count=100, max_provider_call_count=10),
)
NEW: dict[str, Any] = {
    "limits.max_concurrent_samples": 9,
    "limits.priority": -4,
    "budget.max_cost_usd": 8.5,
    "budget.max_token_count": 200,
    "budget.max_provider_call_count": 20,
    "budget.estimate_unreported_usage": True,
}
"""A new value for each field that can be updated."""


def with_values(spec: RunSpec, values: dict[str, Any]) -> RunSpec:
    made = RunSpec()
    made.CopyFrom(spec)
    for path, value in values.items():
        part, _, field = path.partition(".")
        if value is None:
            getattr(made, part).ClearField(field)
        else:
            setattr(getattr(made, part), field, value)
    return made


def request(values: dict[str, Any], *mask: str) -> pb.UpdateRunRequest:
    spec = with_values(RunSpec(), values)
    made = pb.UpdateRunRequest(run_id="run", update_mask=FieldMask(paths=mask))
    for part in ("limits", "budget"):
        if spec.HasField(part):
            getattr(made, part).CopyFrom(getattr(spec, part))
    return made


def updated(asked: pb.UpdateRunRequest) -> RunSpec:
    return updated_spec(SPEC, asked, update_paths(asked))


def test_every_field_of_limits_and_budget_is_known() -> None:
    assert set(update_paths(request({}, "*"))) == set(NEW)


@pytest.mark.parametrize("path", NEW)
def test_a_field_without_a_mask_is_set_and_no_other(path: str) -> None:
    assert updated(request({path: NEW[path]})) == with_values(SPEC, {path: NEW[path]})


@pytest.mark.parametrize("path", NEW)
def test_a_field_of_the_mask_is_set_and_no_other(path: str) -> None:
    assert updated(request(NEW, path)) == with_values(SPEC, {path: NEW[path]})


@pytest.mark.parametrize("path", NEW)
def test_a_field_of_the_mask_without_a_value_is_cleared(path: str) -> None:
    assert updated(request({}, path)) == with_values(SPEC, {path: None})


@pytest.mark.parametrize("part", ["limits", "budget"])
def test_a_message_of_the_mask_is_replaced(part: str) -> None:
    path = next(path for path in NEW if path.startswith(part))
    of_part = {one: None for one in NEW if one.startswith(part)}
    assert updated(request(NEW, part)) == with_values(
        SPEC, {one: NEW[one] for one in NEW if one.startswith(part)}
    )
    assert updated(request({path: NEW[path]}, part)) == with_values(SPEC, {**of_part, path: NEW[path]})


def test_an_empty_request_changes_nothing() -> None:
    assert updated(request({})) == SPEC


def test_a_budget_of_zero_is_a_value() -> None:
    assert updated(request({"budget.max_cost_usd": 0.0})) == with_values(SPEC, {"budget.max_cost_usd": 0.0})


def test_a_star_replaces_all() -> None:
    assert updated(request(NEW, "*")) == with_values(SPEC, NEW)


@pytest.mark.parametrize("path", ["", "limit", "limits.", "limits.prio", "budget.max_cost_usd.x", "run_id"])
def test_an_unknown_field_is_refused(path: str) -> None:
    with pytest.raises(ServiceError, match="update_mask") as raised:
        update_paths(request(NEW, "limits.priority", path))
    (violation,) = raised.value.violations
    assert violation.field == "update_mask"
    assert repr(path) in violation.description
