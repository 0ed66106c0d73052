"""The longer of two texts: a baseline for judges of pairs."""

from __future__ import annotations

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb


def longer_text(first: str, second: str) -> pb.Preference.ValueType:
    """Prefers the text with more characters (Unicode code points); equal lengths are a tie."""
    if len(first) == len(second):
        return pb.PREFERENCE_TIE
    return pb.PREFERENCE_FIRST if len(first) > len(second) else pb.PREFERENCE_SECOND
