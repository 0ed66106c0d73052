"""Validates run specs beyond the limits of the contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.judge.roles import (
    AUTHOR,
    COMMONSENSE,
    CRITIC,
    EDGES,
    EXECUTE,
    GRAPH,
    PAIR_JUDGE,
    RATING_JUDGE,
    ROLES_FINDER,
    SCRIPT_JUDGE,
    SYNTHESIZE,
    TEXT_SCORER,
    Role,
)
from dramaturg.service.errors import Violation, invalid_fields
from gateway.evaluations.checks import check_distinct
from gateway.judges.registry import Registry
from gateway.judges.selection import check_selections, judge_unknown

_ROLES: Mapping[str, Sequence[Role]] = {
    "scripts": (AUTHOR, SYNTHESIZE, CRITIC, EXECUTE, COMMONSENSE, SCRIPT_JUDGE),
    "texts": (ROLES_FINDER, PAIR_JUDGE),
    "graphs": (AUTHOR, EDGES, GRAPH),
    "decisions": (AUTHOR,),
    "dialogues": (AUTHOR, RATING_JUDGE, PAIR_JUDGE, TEXT_SCORER),
}
"""The roles that a run of each evaluation may name judges for. Each row tells which of them it needs."""


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


def check_models(evaluation: str | None, models: Sequence[str]) -> Iterator[Violation]:
    """Finds models under test that a run of the evaluation cannot have.

    Args:
        evaluation: Its name in the spec.
        models: The models, at the path "models".
    """
    if evaluation == "texts" and models:
        yield Violation("models", "must be empty for texts: the row names the author of each text")
    yield from check_distinct("models", models)


def _violations(spec: RunSpec, registry: Registry) -> Iterator[Violation]:
    evaluation = spec.WhichOneof("evaluation")
    if evaluation is None:
        yield Violation("evaluation", f"is required: one of {', '.join(_ROLES)}")
        return
    yield from check_models(evaluation, spec.models)
    own = registry.configured_roles if evaluation == "scripts" else ()
    yield from check_selections(spec.judges, (*_ROLES[evaluation], *own), registry.roles)
    if spec.policy.HasField("sample_timeout") and spec.policy.sample_timeout.ToNanoseconds() <= 0:
        yield Violation("policy.sample_timeout", "must be above 0")
    for index, pair in enumerate(spec.dialogues.pairs):
        if pair.first_model == pair.second_model:
            yield Violation(f"dialogues.pairs[{index}]", f"compares {pair.first_model!r} with itself")
