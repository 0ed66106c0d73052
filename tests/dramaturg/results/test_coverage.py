"""The share of the judgements asked for that were made."""

from __future__ import annotations

import pytest

from dramaturg.results.coverage import coverage, describe_unjudged


@pytest.mark.parametrize(
    ("succeeded", "done", "judgements", "abstentions", "share"),
    [
        (0, 0, 0, {}, None),
        (4, 4, 8, {}, 1),
        (4, 4, 8, {"REFUSED": 2}, 0.75),
        (4, 4, 8, {"REFUSED": 2, "NOT_SUPPORTED": 4}, 0.5),
        (4, 4, 8, {"NOT_APPLICABLE": 8}, 0),
        (3, 4, 6, {"REFUSED": 3}, 0.375),
        (4, 4, 0, {}, 1),
        (0, 4, 0, {}, 0),
    ],
)
def test_coverage(
    succeeded: int, done: int, judgements: int, abstentions: dict[str, int], share: float | None
) -> None:
    assert coverage(succeeded, done, judgements, abstentions) == share


def test_judgements_that_do_not_count_as_asked_for_stand_apart() -> None:
    found = describe_unjudged(8, 224, {"NOT_SUPPORTED": 185, "LOW_CONFIDENCE": 9}, {})
    assert found == (
        "9 of 39 judgements abstained (LOW_CONFIDENCE 9); "
        "185 judgements do not count as asked for (NOT_SUPPORTED 185)"
    )


def test_abstentions_and_failures_are_named_with_their_reasons() -> None:
    assert describe_unjudged(2, 4, {"REFUSED": 1, "CALL_REJECTED": 1}, {"UNAVAILABLE": 1}) == (
        "2 of 4 judgements abstained (CALL_REJECTED 1, REFUSED 1); 1 of 2 samples failed (UNAVAILABLE 1)"
    )
