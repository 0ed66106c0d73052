"""The edit distance against definitions, theorems, exhaustive search and networkx."""

from __future__ import annotations

import pytest

from dramaturg.graphs.parsing.graph import normalise


@pytest.mark.parametrize(
    ("one", "other"),
    [("Put it  away.", "put it away"), ("Straße", "STRASSE;"), ("café", "cafe\u0301"), ("ﬁx", "fix")],
)
def test_labels_are_normalised(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


def test_different_labels_stay_different() -> None:
    assert normalise("turn on the oven") != normalise("turn off the oven")
    assert normalise("2.5 cups") != normalise("25 cups")
