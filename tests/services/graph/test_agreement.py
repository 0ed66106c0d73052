"""FeedbackArcSet cycles, and random graphs."""

from __future__ import annotations

from services.graph.agreement import Preference, majority


def test_a_majority_is_more_than_half() -> None:
    better, equal, worse = Preference.BETTER, Preference.EQUAL, Preference.WORSE
    assert majority([better, better, worse], split=equal) is better
    assert majority([better, worse], split=Preference.UNDECIDED) is Preference.UNDECIDED
    assert majority([better, better, equal, worse], split=equal) is equal
    assert majority([], split=equal) is Preference.UNDECIDED
