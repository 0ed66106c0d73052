"""The measures below the offline agents, on vectors made for the purpose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.judge.steps import parse_candidate
from services.agents.offline import calibration, screens
from services.agents.offline.consensus import best_matches, script_similarities, support
from services.agents.offline.constraints import undecidable_word
from services.agents.offline.duplicates import Repetition, grouped, repeated_wordings
from services.agents.offline.material import MAX_STEPS, Floats, is_latin, read_pool
from services.agents.offline.screens import consistency, expected_positions, most_inverted
from services.agents.offline.wording import contrast, normalise, quote, quote_all
from tests.support.scripts import pool


def scripts_of(lengths: Sequence[int], seed: int) -> list[Floats]:
    generator = np.random.default_rng(seed)
    vectors = [generator.normal(size=(length, 8)).astype(np.float32) for length in lengths]
    return [script / np.linalg.norm(script, axis=1, keepdims=True) for script in vectors]


LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(LENGTHS, st.integers(0, 1000))
def test_best_matches_are_those_of_each_script_alone(lengths: list[int], seed: int) -> None:
    steps, *scripts = scripts_of([3, *lengths], seed)
    expected = np.stack([(steps @ script.T).max(axis=1) for script in scripts], axis=1)
    np.testing.assert_allclose(best_matches(steps, scripts), expected, atol=1e-6)
    np.testing.assert_allclose(support(steps, scripts), expected.mean(axis=1), atol=1e-6)


@given(LENGTHS, st.integers(0, 1000))
def test_script_similarity_is_symmetric_and_highest_with_itself(lengths: list[int], seed: int) -> None:
    scripts = scripts_of(lengths, seed)
    similarity = script_similarities([*scripts, scripts[0]])
    np.testing.assert_array_equal(similarity, similarity.T)
    assert similarity[0, -1] == pytest.approx(1, abs=1e-5)
    assert (similarity >= 0).all()
    assert (similarity <= 1 + 1e-5).all()


def one_hot(order: Sequence[int]) -> Floats:
    return np.eye(8, dtype=np.float32)[list(order)]


@given(st.permutations(range(6)))
def test_an_order_is_judged_by_the_places_of_its_steps(order: list[int]) -> None:
    expected = expected_positions(one_hot(order), [one_hot(range(6))] * 3)
    inversions = sum(order[i] > order[j] for i in range(6) for j in range(i + 1, 6))
    assert consistency(expected) == pytest.approx(1 - 2 * inversions / 15)
    if inversions:
        first, second = most_inverted(expected)
        assert first < second
        drops = [order[i] - order[j] for i in range(6) for j in range(i + 1, 6)]
        assert order[first] - order[second] == max(drops)


def test_scripts_of_one_step_say_nothing_of_order() -> None:
    np.testing.assert_array_equal(expected_positions(one_hot([0, 1]), [one_hot([0])]), [0.5, 0.5])


def test_the_topic_screen_is_relative_to_a_pool_that_is_unlike_the_goal_itself() -> None:
    goal = np.array([1, 0], dtype=np.float32)

    def at(cosine: float) -> Floats:
        return np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32)

    nobody = np.zeros((0, 2), dtype=np.float32)
    few = np.stack([at(0.2)] * (calibration.OFF_TOPIC_MIN_POOL - 1))
    enough = np.stack([at(0.2)] * calibration.OFF_TOPIC_MIN_POOL)
    usual = np.stack([at(0.7)] * calibration.OFF_TOPIC_MIN_POOL)
    assert screens.screen_topic(goal, at(0.2), nobody).off_topic
    assert screens.screen_topic(goal, at(0.2), few).off_topic
    assert not screens.screen_topic(goal, at(0.2), enough).off_topic
    assert screens.screen_topic(goal, at(0.2), usual).off_topic
    assert not screens.screen_topic(goal, at(0.4), usual).off_topic


def test_the_consensus_names_each_absent_step_once() -> None:
    named = screens.uncovered_consensus(
        one_hot([0, 1]), [one_hot([0, 2, 3]), one_hot([2, 1]), one_hot([2, 4])]
    )
    assert named == [1]


@pytest.mark.parametrize(
    ("first", "second", "opposed"),
    [
        ("Turn on the oven", "Turn the oven off", True),
        ("Opening the lid", "Closing the lid", True),
        ("Add 2 eggs", "Add 3 eggs", True),
        ("Add an egg", "Add 2.5 cups", True),
        ("Paint the first coat", "Paint the second coat", True),
        ("Use it", "Don’t use it", True),
        ("Draw the bear's head", "Draw the bear's body", True),
        ("Microwave the clay", "Microwave the clay again", True),
        ("Wash your hands", "Wash the hands", False),
        ("Move into new apartment", "Move to a new apartment", False),
        ("Turn on the oven", "Turn the oven on", False),
    ],
)
def test_contrast(first: str, second: str, opposed: bool) -> None:
    assert (contrast(first, second) is not None) == opposed
    assert (contrast(second, first) is not None) == opposed


@given(st.text())
def test_normalising_twice_is_normalising_once_and_no_text_contrasts_with_itself(text: str) -> None:
    assert contrast(text, text) is None
    assert normalise(f"  {text.strip()} ") == normalise(text)


@given(st.lists(st.sampled_from(["Stir.", "stir", "Pour", " ", ""])))
def test_repeated_wordings_are_disjoint_and_never_blank(steps: list[str]) -> None:
    repeated = [index for group in repeated_wordings(steps) for index in group.steps]
    assert len(repeated) == len(set(repeated))
    assert all(steps[index].strip() for index in repeated)


def test_repetitions_that_share_a_step_are_one_group() -> None:
    found = [
        Repetition((4, 5), 1.0),
        Repetition((0, 2), 0.99),
        Repetition((2, 7), 0.96),
        Repetition((1, 3), 1.0),
    ]
    assert grouped(found) == [Repetition((0, 2, 7), 0.96), Repetition((1, 3), 1.0), Repetition((4, 5), 1.0)]


@pytest.mark.parametrize(
    ("constraint", "word"),
    [
        ("with a crockpot", None),
        ("for a school project", None),
        ("without an oven", "without"),
        ("in under 10 minutes", "under"),
        ("for 4 people", "4"),
        ("using a cordless drill", "cordless"),
        ("Low-Carb", "low"),
    ],
)
def test_plain_constraints_and_others(constraint: str, word: str | None) -> None:
    assert undecidable_word(constraint) == word


@pytest.mark.parametrize(
    ("text", "latin"),
    [
        ("Boil water", True),
        ("烧水", False),
        ("Кипятить воду", False),
        ("123", True),
        ("用 iPhone", True),
        ("Ébouillanter", True),
    ],
)
def test_latin(text: str, latin: bool) -> None:
    assert is_latin([text]) == latin


def test_a_pool_over_the_limit_is_cut_the_same_way_in_any_order() -> None:
    scripts = [[f"Do {number} and {step}" for step in range(1000)] for number in range(6)]
    candidates = [parse_candidate(candidate) for candidate in pool(*scripts)]
    kept = read_pool(candidates)
    assert len(kept.steps) == MAX_STEPS
    assert kept.left_out == 2
    assert read_pool(candidates[::-1]) == kept


def test_quotes_are_short_and_on_one_line() -> None:
    assert quote("a\nb") == '"a b"'
    assert len(quote("word " * 10_000)) < 200
    assert quote_all(str(number) for number in range(8)).endswith("and 3 more")
