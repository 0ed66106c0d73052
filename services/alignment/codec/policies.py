"""What an abstention counts as, in messages and here."""

from __future__ import annotations

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
from services.alignment.accuracy.policies import AbstentionPolicy

_ENCODED = {
    AbstentionPolicy.EXCLUDED: pb.ABSTENTION_POLICY_EXCLUDED,
    AbstentionPolicy.WRONG: pb.ABSTENTION_POLICY_WRONG,
    AbstentionPolicy.WORST_CASE: pb.ABSTENTION_POLICY_WORST_CASE,
}
_DECODED = {message: policy for policy, message in _ENCODED.items()}


def decode_policy(policy: pb.AbstentionPolicy.ValueType) -> AbstentionPolicy:
    """Reads a policy; unspecified: abstentions are left out."""
    return _DECODED.get(policy, AbstentionPolicy.EXCLUDED)


def encode_policy(policy: AbstentionPolicy) -> pb.AbstentionPolicy.ValueType:
    """Writes a policy."""
    return _ENCODED[policy]
