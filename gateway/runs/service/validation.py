"""Validates run specs beyond the limits of the contract."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.service.errors import Violation, invalid_fields
from gateway.evaluations.kinds import RUN_KINDS, run_kind
from gateway.judges.registry import Registry
from gateway.judges.selection import check_selections, judge_unknown


def check_spec(spec: RunSpec, registry: Registry) -> None:
    """Refuses a spec with which no row could be evaluated.

    Args:
        spec: The spec, within the limits of the contract.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN.
    """
    if found := list(_violations(spec, registry)):
        raise invalid_fields([Violation(f"spec.{field}", description) for field, description in found])
    for index, selection in enumerate(spec.judges):
        if selection.judge and registry.find(selection.role, selection.judge) is None:
            raise judge_unknown(selection.role, selection.judge, registry, f"spec.judges[{index}].judge")


def _violations(spec: RunSpec, registry: Registry) -> Iterator[Violation]:
    if spec.WhichOneof("evaluation") is None:
        yield Violation("evaluation", f"is required: one of {', '.join(RUN_KINDS)}")
        return
    kind = run_kind(spec)
    yield from kind.check_models(spec.models)
    own = registry.configured_roles if kind.accepts_configured_roles else ()
    yield from check_selections(spec.judges, (*kind.roles, *own), registry.roles)
    if spec.policy.HasField("sample_timeout") and spec.policy.sample_timeout.ToNanoseconds() <= 0:
        yield Violation("policy.sample_timeout", "must be above 0")
    if spec.HasField("batch_then_live"):
        yield from _batch_violations(spec)
    yield from kind.check_spec(spec)


def _batch_violations(spec: RunSpec) -> Iterator[Violation]:
    lane = spec.batch_then_live
    if lane.HasField("deadline") and lane.deadline.ToNanoseconds() <= 0:
        yield Violation("batch_then_live.deadline", "must be above 0")
    if spec.budget.max_cost_usd or spec.budget.max_token_count or spec.budget.max_provider_call_count:
        said = (
            "cannot be kept with batch_then_live: batches are sent before their cost is known. Leave one out"
        )
        yield Violation("budget", said)
