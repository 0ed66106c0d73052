"""Rules put just the fault into a script that they say, and the same one for the same seed."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dramaturg.meta_evaluation.rules import (
    RULES,
    Category,
    Material,
    NotApplicableError,
    Perturbed,
    perturb,
    reword,
)
from dramaturg.meta_evaluation.vocabulary import Vocabulary
from tests.support.step_changes import apply_changes, revert_changes

STEPS = ["Fill the kettle.", "Boil the water.", "Put tea in a cup.", "Pour.", "Wait.", "Drink it."]
STRANGERS = [["Open the bonnet.", "Check the oil."], ["Dig a hole.", "Plant the tree."]]
TEA = Material(STEPS, ["without a kettle", "in 5 minutes"], STRANGERS)

materials = st.builds(
    Material,
    st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=9),
    st.lists(st.sampled_from(["online", "with no sugar", "for two"]), max_size=2),
    st.lists(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4), max_size=3),
)


def made(operation: str, material: Material = TEA, seed: int = 0) -> Perturbed:
    return perturb(operation, material, random.Random(seed))


@given(st.sampled_from(sorted(RULES)), materials, st.integers(0, 50))
def test_a_rule_changes_what_it_records_and_nothing_else(
    operation: str, material: Material, seed: int
) -> None:
    try:
        perturbed = made(operation, material, seed)
    except NotApplicableError:
        assume(False)
    assert perturbed.steps != material.steps
    assert perturbed.steps
    assert apply_changes(material.steps, perturbed.changes) == perturbed.steps
    assert revert_changes(perturbed.steps, perturbed.changes) == list(material.steps)
    assert made(operation, material, seed) == perturbed


@given(st.sampled_from(sorted(RULES)), st.integers(0, 200))
def test_each_category_has_its_own_kind_of_change(operation: str, seed: int) -> None:
    perturbed = made(operation, seed=seed)
    removed = [one for one in perturbed.changes if one.perturbed_index is None]
    added = [one for one in perturbed.changes if one.original_index is None]
    moved = [one for one in perturbed.changes if one not in removed and one not in added]
    match RULES[operation].category:
        case Category.MISSING_STEPS:
            assert (len(removed), len(added), len(moved)) == (1, 0, 0)
        case Category.REDUNDANT_STEPS | Category.BROKEN_CONSTRAINT:
            assert (len(removed), len(added), len(moved)) == (0, 1, 0)
        case Category.DUPLICATE_STEPS:
            (copy,) = perturbed.changes
            assert copy in added
            assert copy.perturbed_index
        case Category.WRONG_ORDER:
            assert sorted(perturbed.steps) == sorted(STEPS)
            assert len(moved) == len(perturbed.changes) == (2 if operation == "swap" else 1)
            for one in moved:
                assert one.original_index is not None
                assert one.perturbed_index is not None
                assert abs(one.original_index - one.perturbed_index) >= len(STEPS) // 2
        case Category.GOAL_NOT_REACHED:
            assert len(removed) == (3 if operation == "stop" else 6)


def test_every_category_has_a_rule() -> None:
    assert {rule.category for rule in RULES.values()} == set(Category)


def test_seeds_draw_different_places() -> None:
    assert len({made("delete", seed=seed).changes[0].original_index for seed in range(60)}) == len(STEPS)


def test_a_repeat_follows_what_it_repeats() -> None:
    for seed in range(40):
        (copy,) = made("repeat", seed=seed).changes
        assert copy.perturbed_text in STEPS[: copy.perturbed_index]


@pytest.mark.parametrize(
    ("constraint", "step"),
    [
        ("Without a Slow Cooker", "Do the rest with a Slow Cooker."),
        ("with no sugar.", "Do the rest with sugar."),
        ("without using an oven", "Do the rest with an oven."),
        ("without opening a window", "Do the rest by opening a window."),
        ("without baking soda", "Do the rest with baking soda."),
        ("without frosting", "Do the rest with frosting."),
        ("by not wearing boots", "Do the rest by wearing boots."),
        ("Don't add salt", "Go ahead and add salt."),
        ("with a red balloon", "Do the rest without a red balloon."),
        ("using a drill", "Do the rest without a drill."),
        ("by playing games", "Do the rest without playing games."),
        ("for a family of four", "Do the rest, but not for a family of four."),
        ("By hand", "Do the rest, but not by hand."),
        ("online", "Do the rest, but not online."),
        ("every two weeks", "Do the rest, but not every two weeks."),
        ("the taskbar", "Forget about the taskbar and do the rest as you like."),
        ("wipe with a cloth", "Do not wipe with a cloth."),
        ("wiping with a cloth", 'Forget about "wiping with a cloth" and do the rest as you like.'),
        ("no", 'Forget about "no" and do the rest as you like.'),
        ("without", 'Forget about "without" and do the rest as you like.'),
        ("with {braces}", "Do the rest without {braces}."),
        ("notebook in hand", 'Forget about "notebook in hand" and do the rest as you like.'),
        ("forks only", 'Forget about "forks only" and do the rest as you like.'),
    ],
)
def test_a_constraint_is_broken_in_words(constraint: str, step: str) -> None:
    material = Material(STEPS, [constraint], vocabulary=Vocabulary(verbs=frozenset({"wipe"})))
    (change,) = made("contradict", material).changes
    assert change.perturbed_text == step


@pytest.mark.parametrize(
    ("operation", "material", "reason"),
    [
        ("delete", Material(["One."]), "fewer than 2 steps"),
        ("stop", Material(["One."]), "fewer than 2 steps"),
        ("swap", Material(["One."]), "fewer than 2 steps"),
        ("swap", Material(["Same.", "Same."]), "the same texts"),
        ("insert", Material(STEPS), "no script for another goal"),
        ("replace", Material(STEPS), "no script for another goal"),
        ("contradict", Material(STEPS), "no constraint"),
    ],
)
def test_what_cannot_be_done_says_why(operation: str, material: Material, reason: str) -> None:
    with pytest.raises(NotApplicableError, match=reason):
        made(operation, material)


def test_rewording_keeps_the_rest_of_the_step() -> None:
    draw = random.Random(0)
    for _ in range(20):
        assert reword("Put 2.5 cups of USB sticks in.", draw).endswith(" place 2.5 cups of USB sticks in.")
        assert reword("USB sticks go in.", draw).endswith(" USB sticks go in.")
        assert reword("  2.5 cups.", draw).endswith(" 2.5 cups.")
