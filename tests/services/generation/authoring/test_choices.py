"""Which answers are a choice. An unclear one never is."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import decision_pb2
from services.generation.authoring.choices import read_choice

ONE, TWO, EITHER = (
    decision_pb2.CHOICE_OPTION_1,
    decision_pb2.CHOICE_OPTION_2,
    decision_pb2.CHOICE_EITHER,
)
CALL, SEARCH = "call the library", "search online for the library's hours"
WHOLE = (
    "3) either: both serve the goal about equally well, it makes little difference",
    "3) either, as both come to about the same for the goal",
    "3) either one, since they have similar effect when it comes to the goal",
)
"""The third answer as prompts offer it: ours, that of the example, the paper's."""
FORMS = {
    ONE: ["1", "option 1", CALL, "1) option 1", f"option 1: {CALL}"],
    TWO: ["2", "option 2", SEARCH, "2) option 2", f"option 2 ({SEARCH})"],
    EITHER: ["3", "either", "both", "option 3", "3) either", "either: it makes little difference", *WHOLE],
}
LABELS = {ONE: "option 1", TWO: "option 2", EITHER: "either"}
Form = tuple[decision_pb2.Choice.ValueType, str]
ACCEPTED = st.sampled_from([(choice, form) for choice, forms in FORMS.items() for form in forms])
DECORATIONS = st.sampled_from(
    [str, str.upper, str.capitalize, "{}.".format, "**{}**".format, '"{}"'.format, "\n {} \n".format]
)
STATED = ["The answer is {}.", "Answer: {}", "{}. There is no telephone.", "Doe has no telephone.\n\n{}"]
CLOUDS = [
    "The better choice is {}.",
    "I would choose {}.",
    "Because Doe has no telephone, {} is better.",
    "Not {}.",
    "{} is not feasible.",
    "{}, which isn't possible",
    "{}?",
    "Anything but {}.",
    "If Doe has a telephone, {}.",
    "Maybe {}.",
    "It depends. {}.",
    "The other one is better than {}.",
    "Avoid {}.",
    "I cannot decide, {}",
    "{} would be worse.",
]


def read(text: str) -> decision_pb2.Choice.ValueType | None:
    return read_choice(text, CALL, SEARCH)


@given(ACCEPTED, DECORATIONS)
def test_every_accepted_form_is_read(
    form: tuple[decision_pb2.Choice.ValueType, str], decorate: object
) -> None:
    choice, text = form
    assert callable(decorate)
    assert read(decorate(text)) == choice


@pytest.mark.parametrize("choice", FORMS)
@pytest.mark.parametrize("sentence", STATED)
def test_an_answer_that_states_one_is_read(sentence: str, choice: decision_pb2.Choice.ValueType) -> None:
    assert read(sentence.format(LABELS[choice])) == choice


@pytest.mark.parametrize("named", ["option 1", "Option 2", CALL])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_sentence_that_only_names_an_option_is_no_choice(cloud: str, named: str) -> None:
    assert read(cloud.format(named)) is None


@given(ACCEPTED, ACCEPTED, st.sampled_from([" ", " or ", " and ", ". ", "\n", ", not ", " / ", ", because "]))
@example((decision_pb2.CHOICE_EITHER, "either"), (decision_pb2.CHOICE_OPTION_2, "option 2"), " ")
def test_two_choices_are_none(
    first: Form,
    second: Form,
    glue: str,
) -> None:
    text = f"{first[1]}{glue}{second[1]}"
    assert first[0] == second[0] or read(text) is None


@given(st.text(alphabet="abcdefghij klm.,;:!?()\n'", max_size=80))
def test_text_that_names_nothing_is_no_choice(text: str) -> None:
    assert read_choice(text, "Wxyz", "Vwxyz") is None


@given(st.text(max_size=200), st.text(max_size=20), st.text(max_size=20))
def test_nothing_makes_it_fail_and_exchanging_the_options_keeps_labels(text: str, one: str, two: str) -> None:
    read_choice(text, one, two)
    assert read_choice("Option 1", one, two) in {ONE, None}


@given(st.sampled_from([CALL, SEARCH, f"Answer: {CALL}.", f"It is late.\n\n{SEARCH}"]))
def test_own_words_follow_the_option_where_it_stands(text: str) -> None:
    exchanged = {ONE: TWO, TWO: ONE}
    choice = read_choice(text, CALL, SEARCH)
    assert choice is not None
    assert read_choice(text, SEARCH, CALL) == exchanged[choice]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "neither",
        "Both need time.",
        "<think>\nOption 2",
        "Option 1, because option 2",
        "Option 1. But option 2 is better.",
        "Option 1? Hmm, option 2.",
        "Option 1. Wait, option 2 is what I mean.",
        "It makes little difference, but option 1 is better.",
        "12",
        "1 2",
        "0",
        "Option 4",
        "Option 12",
        "1. The scenario says that the library is closed.",
        "2) Option 1",
        "Answer: 2) Option 1",
        f"Option 1: {SEARCH}",
        "Either option 1 or option 2.",
        "Option 1 is too expensive.",
        "the other one",
        "The latter.",
        "Either way, somebody has to answer.",
        "1) Option 1\n2) Option 2\n3) Either",
        "Option 1. Option 2 requires an internet connection.",
        "Option 1, because option 2 is not feasible.",
        "Option 1\n\nOption 2 would take longer.",
        "I would choose option 1 over option 2.",
        "Either. Option 1 and option 2 both reach the goal.",
    ],
)
def test_unclear_answers_are_no_choice(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("\\boxed{Option 1}", ONE),
        ("$\\boxed{\\text{Option 2}}$", TWO),
        ("Both", EITHER),
        ("It makes little difference.", EITHER),
        ("Option 1 needs a telephone. Option 2 needs a computer.\nAnswer: Option 2", TWO),
        ("<think>Option 2</think>Option 1", ONE),
    ],
)
def test_other_forms_are_read(text: str, choice: decision_pb2.Choice.ValueType) -> None:
    assert read(text) == choice


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        (f"Given that the library is closed at night, Option 2 ({SEARCH}) is better than Option 1.", TWO),
        (f"Given that Doe can't type, Option 1 ({CALL}) is better than Option 2.", ONE),
        ("**Option 1** is the better choice than Option 2 because it is near.", ONE),
        ("Since Option 1 is closed, Option 2 is better than Option 1.", None),
        ("I doubt that Option 1 is better than Option 2.", None),
        ("If it rains, Option 1 is better than Option 2.", None),
        ("Option 1 is better than Option 2 only if it rains.", None),
        ("Option 1 is better than Option 2?", None),
        ("Option 1 is not better than Option 2.", None),
        ("Option 1 is better than Option 2. But either works.", None),
        ("Given the rain, Option 1 is better than Option 1.", None),
    ],
)
def test_a_comparison_of_both_options_is_read(
    text: str, choice: decision_pb2.Choice.ValueType | None
) -> None:
    assert read(text) == choice


def test_a_very_long_answer_is_unclear_and_soon_read() -> None:
    assert read("Option 1. " + "It is quiet there. " * 100) == ONE
    assert read("Option 1, which he should " + "should, " * 50_000) is None


def test_an_option_that_holds_the_other_is_told_from_it() -> None:
    assert read_choice("walk", "walk", "walk to the station") == ONE
    assert read_choice("Walk to the station.", "walk", "walk to the station") == TWO
    assert read_choice("sidewalk", "walk", "walk to the station") is None


def test_options_of_the_same_words_are_told_apart_by_label_only() -> None:
    assert read_choice("walk", "walk", "Walk.") is None
    assert read_choice("Option 2", "walk", "Walk.") == TWO


def test_a_negation_in_an_option_s_own_words_is_no_cloud() -> None:
    assert read_choice("Option 1 (do not eat)", "do not eat", "eat either pie") == ONE
    assert read_choice("Eat either pie", "do not eat", "eat either pie") == TWO
