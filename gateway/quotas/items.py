"""The number of judgements and model calls that a request asks for.

Items count against quotas and against ``server.max_concurrent_calls`` before the request starts any work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest
from dramaturg.service.contract import Contract
from gateway.evaluations.kinds import KINDS

ITEM_FIELDS: Mapping[str, Sequence[str]] = {
    **{kind.request_type.DESCRIPTOR.name: kind.items for kind in KINDS if kind.items},
    "JudgeRequest": ("candidates",),
    "GenerateBatchRequest": ("requests",),
    "ScoreTextsRequest": ("texts",),
}
"""The fields whose elements are items, by the name of the request. Any other request is one item."""


def count_items(request: Any) -> int:
    """The number of items in a request, at least 1."""
    if isinstance(request, EstimateRunRequest):
        return max(1, request.pilot_sample_count)
    return max(1, sum(len(getattr(request, name)) for name in ITEM_FIELDS.get(request.DESCRIPTOR.name, ())))


def with_items(contract: Contract) -> Contract:
    """The contract with ``count_items`` as the weight of its batches."""
    weights = {
        method.name: count_items
        for method in contract.descriptor.methods
        if method.input_type.name in {*ITEM_FIELDS, EstimateRunRequest.DESCRIPTOR.name}
    }
    return replace(contract, weights=weights)
