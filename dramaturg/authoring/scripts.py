"""Scripts that models under test write."""

from __future__ import annotations

from collections.abc import Mapping

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason

UNUSABLE_SCRIPTS: Mapping[str, AbstainReason.ValueType] = {
    "refused": verdict_pb2.ABSTAIN_REASON_REFUSED,
    "truncated": verdict_pb2.ABSTAIN_REASON_TRUNCATED,
    "empty": verdict_pb2.ABSTAIN_REASON_EMPTY,
}
"""The failures of ``WriteScriptResponse`` that are answers of the model, as ``Candidate.failure_reason``."""
