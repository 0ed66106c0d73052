"""Tokens in their places, whatever a provider makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.generation.v1.generation_service_pb2 import TokenLogprob
from services.judging.pairs.form import Span, Tokens, locate


def tokens(*texts: str, logprobs: Sequence[float] = ()) -> list[TokenLogprob]:
    return [
        TokenLogprob(token=text, logprob=logprob)
        for text, logprob in zip(texts, logprobs or [-0.5] * len(texts), strict=True)
    ]


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text and the tokens it is cut into, of whole characters."""
    pieces = draw(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=20))
    return "".join(pieces), pieces


@given(cut_texts())
def test_tokens_of_the_text_stand_where_they_are(cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    places = locate(tokens(*pieces), text)
    assert places is not None
    assert [text[place.start : place.end] for place in places] == pieces


@given(cut_texts(), st.text(max_size=10), st.text(max_size=10))
def test_tokens_around_the_text_stand_nowhere(cut: tuple[str, list[str]], before: str, after: str) -> None:
    text, pieces = cut
    around = [before, *pieces, after]
    places = locate(tokens(*around), text)
    assert places is not None
    assert sum(place.end - place.start for place in places) == len(text)
    assert "".join(text[place.start : place.end] for place in places) == text


def byte_tokens(text: str, cuts: set[int], spelt: bool) -> list[str]:
    """A text cut between bytes, each token as a provider shows it."""
    data = text.encode()
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    shown = []
    for start, end in pairwise(places):
        piece = data[start:end]
        try:
            shown.append(piece.decode())
        except UnicodeDecodeError:
            escaped = piece.decode(errors="backslashreplace")
            shown.append(escaped if spelt else piece.decode(errors="replace"))
    return shown


@given(st.text("ab妙é\U0001f600 ", min_size=1, max_size=30), st.sets(st.integers(1, 90)), st.booleans())
def test_what_can_be_read_around_split_characters_is_never_misplaced(
    text: str, cuts: set[int], spelt: bool
) -> None:
    shown = byte_tokens(text, cuts, spelt)
    places = locate(tokens(*shown), text)
    if places is None:
        return  # there was more than one way
    assert len(places) == len(shown)
    assert [place.start for place in places] == sorted(place.start for place in places)
    for token, place in zip(shown, places, strict=True):
        if "\ufffd" not in token and "\\x" not in token:
            assert text[place.start : place.end] == token


@given(st.integers(0, 3), st.integers(0, 2), st.booleans())
def test_split_characters_between_words_are_bridged(count: int, cut: int, spelt: bool) -> None:
    text = " und ".join(["妙é\U0001f600"] * (count + 1)) + "."
    data = text.encode()
    cuts = {place + 1 + cut % 2 for place in range(len(data)) if data[place] >= 0xE0}
    shown = byte_tokens(text, cuts, spelt)
    places = locate(tokens(*shown), text)
    assert places is not None
    assert (places[0].start, places[-1].end) == (0, len(text))
    assert all(one.end >= two.start for one, two in pairwise(places))


def test_end_marks_are_left_out_also_beside_split_characters() -> None:
    places = locate(tokens('{"a', "\ufffd", '"}', "<|end|>"), '{"a妙"}')
    assert places == [Span(0, 3), Span(3, 4), Span(4, 6), Span(6, 6)]


@given(cut_texts(), st.text(min_size=1, max_size=30))
def test_tokens_of_another_text_are_not_placed(cut: tuple[str, list[str]], other: str) -> None:
    text, pieces = cut
    if other not in text and not any("\ufffd" in piece or "\\x" in piece for piece in pieces):
        places = locate(tokens(*pieces), other)
        assert places is None


LOGPROBS = (-0.1, -0.2, -0.4, -0.8)


@pytest.mark.parametrize(
    ("spans", "counted"),
    [
        ([(0, 2)], [0]),
        ([(1, 3)], [0, 1]),  # in part is in whole
        ([(2, 4)], [1]),  # the neighbours only touch it
        ([(0, 1), (1, 2)], [0]),  # once, though two spans have it
        ([(0, 2), (6, 8)], [0, 3]),
        ([(3, 3)], [1]),
        ([(4, 4)], []),
        ([], []),
    ],
)
def test_a_token_counts_once_and_whole(spans: list[tuple[int, int]], counted: list[int]) -> None:
    listed = tokens("ab", "cd", "ef", "gh", logprobs=LOGPROBS)
    places = locate(listed, "abcdefgh")
    assert places is not None
    confidence = Tokens(listed, places).confidence([Span(*span) for span in spans])
    if counted:
        mean = sum(LOGPROBS[index] for index in counted) / len(counted)
        assert confidence == pytest.approx(math.exp(mean))
    else:
        assert confidence is None


@pytest.mark.parametrize("logprob", [-math.inf, math.nan, -1e6])
def test_what_is_no_probability_is_no_confidence(logprob: float) -> None:
    listed = tokens("ab", "cd", logprobs=[logprob, -0.1])
    assert Tokens(listed, [Span(0, 2), Span(2, 4)]).confidence([Span(0, 4)]) is None
