"""Criteria of rubrics as judges get them."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_CRITERION, Role
from dramaturg.judge.rules import describe_rule

MAX_RULE_TEXT = 900
"""The most characters of a rule in the definition of its criterion."""


def encode_criterion(one: RubricCriterion) -> Criterion:
    """A criterion as judges of texts get it: its texts are the definition."""
    parts = (
        one.description.strip(),
        f"Pass: {one.passes.strip()}" if one.passes else "",
        f"Fail: {one.fails.strip()}" if one.fails else "",
        describe_rule(one.rule)[:MAX_RULE_TEXT] if one.HasField("rule") else "",
    )
    encoded = Criterion(id=one.id, definition="\n".join(part for part in parts if part), each=one.each)
    if one.HasField("rule"):
        encoded.rule.CopyFrom(one.rule)
    if one.HasField("scale"):
        encoded.scale.CopyFrom(one.scale)
    return encoded


def criterion_role(one: RubricCriterion) -> Role:
    """A criterion as a role of a pair judge, which votes by it alone."""
    parts = (
        "A judge who looks only at this.",
        encode_criterion(one).definition,
        *(f"Worth {anchor.value} of {one.scale.highest}: {anchor.meaning}" for anchor in one.scale.anchors),
    )
    return Role(type=one.id, description="\n".join(parts), origin=ROLE_ORIGIN_CRITERION)
