"""Reading yes and no, and how likely yes was."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.generation.v1.generation_service_pb2 import AlternativeToken, TokenLogprob
from services.generation.edges.yes_no import probability_of_yes, read_yes_no

LOGPROBS = st.floats(min_value=-20, max_value=0)


def token(text: str, probability: float, **alternatives: float) -> TokenLogprob:
    return TokenLogprob(
        token=text,
        logprob=math.log(probability),
        alternatives=[
            AlternativeToken(token=word.replace("_", " "), logprob=math.log(one))
            for word, one in alternatives.items()
        ],
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", True),
        ("Yes.", True),
        (" **No** ", False),
        ("Answer: no", False),
        ("Yes, because it must be hot.", True),
        ("No - they can be done side by side.", False),
        ("yes and no", None),
        ("Yes. No.", None),
        ("No event needs the other.", None),
        ("It is not clear.", None),
        ("I would say yes", None),
        ("yesterday", None),
        ("nobody", None),
        ("", None),
        ("y", None),
    ],
)
def test_only_a_clear_answer_is_read(text: str, expected: bool | None) -> None:
    assert read_yes_no(text) is expected


def test_spellings_are_summed_and_normalised_over_the_two_words() -> None:
    tokens = [token("Yes", 0.5, Yes=0.5, _yes=0.1, No=0.15, Maybe=0.2)]
    assert probability_of_yes(tokens, answer=True) == pytest.approx(0.6 / 0.75)


def test_without_alternatives_the_other_word_is_given_the_rest() -> None:
    assert probability_of_yes([token("No", 0.7)], answer=False) == pytest.approx(0.3)
    assert probability_of_yes([token("Yes", 0.7)], answer=True) == pytest.approx(0.7)


def test_a_word_that_is_not_listed_counts_as_impossible() -> None:
    assert probability_of_yes([token("Yes", 0.9, Yes=0.9, Well=0.1)], answer=True) == 1.0
    assert probability_of_yes([token("No", 0.9, No=0.9, Well=0.1)], answer=False) == 0.0


def test_the_token_counts_even_where_the_list_leaves_it_out() -> None:
    assert probability_of_yes([token("yes", 0.2, No=0.6)], answer=True) == pytest.approx(0.25)


@pytest.mark.parametrize("tokens", [[], [token("Y", 0.9), token("es", 0.9)], [token("no", 0.9)]])
def test_tokens_that_do_not_show_the_answer_give_nothing(tokens: list[TokenLogprob]) -> None:
    assert probability_of_yes(tokens, answer=True) is None


def test_an_impossible_log_probability_gives_nothing() -> None:
    assert probability_of_yes([TokenLogprob(token="yes", logprob=math.nan)], answer=True) is None
    assert probability_of_yes([TokenLogprob(token="yes", logprob=0.1)], answer=True) is None


@given(LOGPROBS, st.lists(st.tuples(st.sampled_from(["Yes", " no", "NO", "x"]), LOGPROBS), max_size=5))
def test_it_is_always_a_probability(logprob: float, others: list[tuple[str, float]]) -> None:
    alternatives = [AlternativeToken(token=word, logprob=one) for word, one in others]
    tokens = [TokenLogprob(token="Yes", logprob=logprob, alternatives=alternatives)]
    probability = probability_of_yes(tokens, answer=True)
    assert probability is not None
    assert 0 <= probability <= 1
