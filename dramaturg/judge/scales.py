"""Scales of criteria that are scored."""

from __future__ import annotations

from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale


def scale_problem(scale: CriterionScale) -> str:
    """The reason why a scale cannot be used, as a predicate; empty: it can."""
    if scale.lowest >= scale.highest:
        return f"must have a highest score above the lowest, not {scale.lowest} to {scale.highest}"
    values = [anchor.value for anchor in scale.anchors]
    for value in values:
        if not scale.lowest <= value <= scale.highest:
            return f"has an anchor at {value}, which is not from {scale.lowest} to {scale.highest}"
    if len(set(values)) < len(values):
        return "has two anchors at one score"
    return ""
