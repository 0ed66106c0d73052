"""Messages of CompareRuns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dramaturg.api.alignment.v1 import compare_pb2 as pb
from dramaturg.service.errors import Violation, invalid, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.bootstrap import cluster_codes, group_codes
from services.alignment.codec.correlation import encode_difference
from services.alignment.codec.estimates import (
    decode_policy,
    decode_resampling,
    encode_estimate,
    encode_policy,
)
from services.alignment.comparison.model import Compared, Design, Gate, PolicyComparison, RunComparison, Runs
from services.alignment.workers import Checkpoint

DEFAULT_PERMUTATIONS = 9999
"""How many permutations are drawn where the request names no number: with the one seen, 10,000."""
DEFAULT_POWER = 0.8
"""The power of the minimum detectable effect where the request names none (Cohen 1988)."""
_CHUNK = 10_000
_GATES = {
    Gate.GO: pb.GATE_GO,
    Gate.NO_GO: pb.GATE_NO_GO,
    Gate.INCONCLUSIVE: pb.GATE_INCONCLUSIVE,
}


def decode_runs(request: pb.CompareRunsRequest, checkpoint: Checkpoint) -> tuple[Runs, Design]:
    """Reads the systems' values and how they are to be compared.

    Raises:
        ServiceError: INVALID_ARGUMENT: no item has the baseline, or nothing is compared with it; verdicts
            beside scores; a lowest score that is not below the highest.
    """
    verdicts = _verdicts(request, checkpoint)
    ends = request.HasField("lowest_score") and request.HasField("highest_score")
    if ends and request.lowest_score >= request.highest_score:
        raise invalid("highest_score", "is not above lowest_score")
    names = sorted({system for item in request.items for system in item.outcomes})
    if request.baseline not in names:
        raise invalid("baseline", f"is {request.baseline!r}, which no item has; there are {', '.join(names)}")
    if len(names) == 1:
        raise invalid("items", "have the baseline alone: there is nothing to compare with it")
    values = {name: np.full(len(request.items), np.nan) for name in names}
    ran = {name: np.zeros(len(request.items), np.bool_) for name in names}
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        for name, outcome in item.outcomes.items():
            ran[name][index] = True
            if kind := outcome.WhichOneof("value"):
                values[name][index] = float(getattr(outcome, kind))
    groups, group = group_codes(item.tags.get(request.group_tag, "") for item in request.items)
    runs = Runs(
        values=values,
        ran=ran,
        human=np.array([item.human if item.HasField("human") else math.nan for item in request.items]),
        group=group,
        groups=groups,
        cluster=cluster_codes([item.tags.get(request.cluster_tag, "") for item in request.items]),
    )
    return runs, _design(request, verdicts=verdicts, checkpoint=checkpoint)


def encode_compared(compared: Compared, design: Design) -> pb.CompareRunsResponse:
    return pb.CompareRunsResponse(
        comparisons=[_encode_comparison(one) for one in compared.comparisons],
        gate=_GATES[compared.gate],
        gate_reasons=compared.reasons,
        abstention_policy=encode_policy(design.policy),
        largest_task_loss=design.loss,
    )


def _verdicts(request: pb.CompareRunsRequest, checkpoint: Checkpoint) -> bool:
    wanted, violations = "", list[Violation]()
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        for name, outcome in item.outcomes.items():
            kind = outcome.WhichOneof("value") or ""
            wanted = wanted or kind
            if kind and kind != wanted:
                problem = f"is {kind}, where others are {wanted}: compare verdicts or scores"
                violations.append(Violation(f"items[{index}].outcomes[{name!r}]", problem))
        if len(violations) >= MAX_VIOLATIONS:
            break
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    return wanted != "score"


def _design(request: pb.CompareRunsRequest, *, verdicts: bool, checkpoint: Checkpoint) -> Design:
    lowest = request.lowest_score if request.HasField("lowest_score") else None
    highest = request.highest_score if request.HasField("highest_score") else None
    return Design(
        baseline=request.baseline,
        verdicts=verdicts,
        clustered=bool(request.cluster_tag),
        lowest=0.0 if verdicts else lowest,
        highest=1.0 if verdicts else highest,
        margin=request.margin,
        power=request.power if request.HasField("power") else DEFAULT_POWER,
        permutations=request.permutation_count or DEFAULT_PERMUTATIONS,
        policy=decode_policy(request.abstention_policy),
        every_group=request.gate_scope == pb.GATE_SCOPE_EVERY_GROUP,
        resampling=decode_resampling(request, checkpoint),
        largest_loss=request.largest_task_loss if request.HasField("largest_task_loss") else None,
        anytime=request.anytime,
    )


def _encode_comparison(one: RunComparison) -> pb.RunComparison:
    message = pb.RunComparison(
        group=one.group,
        system=one.system,
        item_count=one.items,
        unpaired_count=one.unpaired,
        cluster_count=one.clusters,
        baseline_abstained_count=one.baseline_abstained,
        abstained_count=one.abstained,
        policies=_encode_policies(one.policies),
        decided=one.decided,
    )
    if one.correlation is not None:
        message.correlation.CopyFrom(encode_difference(one.correlation))
    return message


def _encode_policies(policies: Sequence[PolicyComparison]) -> list[pb.PolicyComparison]:
    return [
        pb.PolicyComparison(
            policy=encode_policy(one.policy),
            baseline_mean=encode_estimate(one.baseline_mean),
            system_mean=encode_estimate(one.system_mean),
            difference=encode_estimate(one.difference),
            better_count=one.better,
            worse_count=one.worse,
            p_value=one.p,
            adjusted_p_value=one.adjusted_p,
            test=one.test,
            minimum_detectable_effect=one.minimum_detectable_effect,
            gate=_GATES[one.gate],
            false_discovery_p_value=one.false_discovery_p,
            corrected_gate=_GATES[one.corrected_gate] if one.corrected_gate else pb.GATE_UNSPECIFIED,
            lower_bound=one.lower_bound,
            lower_bound_method=one.lower_bound_method,
        )
        for one in policies
    ]
