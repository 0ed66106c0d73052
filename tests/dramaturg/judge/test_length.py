from __future__ import annotations

import pytest

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.judge.length import longer_text


@pytest.mark.parametrize(
    ("first", "second", "longer"),
    [
        ("abcd", "abc", pb.PREFERENCE_FIRST),
        ("äöü", "abcd", pb.PREFERENCE_SECOND),
        ("abc", "äöü", pb.PREFERENCE_TIE),
        ("", "", pb.PREFERENCE_TIE),
        ("", "a", pb.PREFERENCE_SECOND),
    ],
)
def test_the_longer_text_has_more_characters(first: str, second: str, longer: int) -> None:
    assert longer_text(first, second) == longer
