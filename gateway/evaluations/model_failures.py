"""Failures of the model under test to give a usable output.

A refusal, an empty output and an output that the token cap cuts off say something about the model, so they
count against it and are no abstentions. All other reasons (failed judges and providers, timeouts, content
filters, answers that cannot be read) remain abstentions.
"""

from __future__ import annotations

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason

MODEL_FAILURES = frozenset(
    {
        verdict_pb2.ABSTAIN_REASON_REFUSED,
        verdict_pb2.ABSTAIN_REASON_EMPTY,
        verdict_pb2.ABSTAIN_REASON_TRUNCATED,
    }
)


def is_model_failure(reason: AbstainReason.ValueType, *, abstains: bool) -> bool:
    """Whether a missing output counts as a failure of the model under test.

    Args:
        reason: The reason of the missing output.
        abstains: ``unusable_outputs_abstain`` of the request or of the run.
    """
    return reason in MODEL_FAILURES and not abstains
