"""What was changed in a script is recorded, and can be undone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.meta_evaluation.rules import (
    MismatchError,
    PlacedStep,
    find_changes,
    untouched,
)
from tests.support.step_changes import apply_changes, read_change, revert_changes

TEXTS = st.sampled_from(["boil", "pour", "wait", "pour ", "stir"])


@st.composite
def rewrites(draw: st.DrawFn) -> tuple[list[str], list[PlacedStep]]:
    """A script, and any other that some of its steps went into: kept, reworded, moved; others were added."""
    original = draw(st.lists(TEXTS, max_size=8))
    kept = draw(st.lists(st.sampled_from(range(len(original))), unique=True)) if original else []
    moved = set(draw(st.lists(st.sampled_from(kept), unique=True))) if kept else set()
    placed = [
        PlacedStep(draw(st.sampled_from([original[index], "reworded"])), index)
        for index in sorted(set(kept) - moved)
    ]
    added = [PlacedStep(text) for text in draw(st.lists(TEXTS, max_size=4))]
    for one in [*added, *(PlacedStep(original[index], index, moved=True) for index in moved)]:
        placed.insert(draw(st.integers(0, len(placed))), one)
    return original, placed


@given(rewrites())
def test_either_script_is_made_from_the_other(case: tuple[list[str], list[PlacedStep]]) -> None:
    original, placed = case
    changes = [read_change(change.message()) for change in find_changes(original, placed)]
    perturbed = [step.text for step in placed]
    assert apply_changes(original, changes) == perturbed
    assert revert_changes(perturbed, changes) == original


@given(rewrites())
def test_only_what_changed_is_recorded(case: tuple[list[str], list[PlacedStep]]) -> None:
    original, placed = case
    changes = find_changes(original, placed)
    recorded = {change.original_index for change in changes if change.original_index is not None}
    still = [step.origin for step in placed if step.origin is not None and step.origin not in recorded]
    assert all(original[step.origin] == step.text for step in placed if step.origin in still)
    assert sorted(still) == still
    assert len(recorded) + len(still) == len(original)


def test_nothing_changed_is_no_change() -> None:
    assert find_changes(["a", "b"], untouched(["a", "b"])) == ()


def test_a_step_cannot_stand_twice_or_wander_unsaid() -> None:
    with pytest.raises(MismatchError):
        find_changes(["a", "b"], [PlacedStep("a", 0), PlacedStep("a", 0)])
    with pytest.raises(MismatchError):
        find_changes(["a", "b"], [PlacedStep("b", 1), PlacedStep("a", 0)])
