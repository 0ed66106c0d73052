"""Ballots found in the raw text of an answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judging.pairs.form import member_of, written_ballots

BALLOTS = st.dictionaries(
    st.integers(1, 99).map(member_of),
    st.fixed_dictionaries(
        {"reason": st.text(max_size=30), "vote": st.sampled_from(["1", "2", "tie"])},
    ),
    max_size=6,
)


@given(
    BALLOTS,
    st.booleans(),
    st.sampled_from([None, 2]),
    st.text(st.characters(exclude_characters='"\\'), max_size=20),
)
def test_every_ballot_of_proper_json_is_found(
    ballots: dict[str, dict[str, object]], ascii_only: bool, indent: int | None, around: str
) -> None:
    text = around + json.dumps(ballots, ensure_ascii=ascii_only, indent=indent) + around
    found = list(written_ballots(text))
    assert {b.member: {"reason": b.reason, "vote": b.vote} for b in found} == ballots
    for ballot in found:
        for span, value in zip(ballot.spans, (ballot.reason, ballot.vote), strict=True):
            assert json.loads(f'"{text[span.start : span.end]}"') == value


@given(st.text(max_size=200))
def test_any_text_can_be_searched(text: str) -> None:
    list(written_ballots(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"reason": "a"}',
        '{"reason": ["a"], "vote": "1"}',
        '{"reason": {"reason": "a"}, "vote": "1"}',
        '{"reason": "a", "vote": 1',
        '["reason", "vote"]',
    ],
)
def test_what_is_no_ballot_is_not_found(text: str) -> None:
    assert not list(written_ballots(text))


def test_members_stand_in_any_order_and_the_last_of_a_name_counts() -> None:
    (ballot,) = written_ballots(
        '{"role_3": {"vote": "1", "other": {"vote": "2"}, "reason": "a", "reason": "b"}}'
    )
    assert (ballot.member, ballot.reason, ballot.vote) == ("role_3", "b", "1")


def test_a_single_judge_has_no_number() -> None:
    (ballot,) = written_ballots('{"reason": "a\nb", "vote": "tie"}')
    assert (ballot.member, ballot.reason) == ("", "a\nb")


def test_nesting_beyond_the_limit_ends_the_search_without_memory() -> None:
    ballot = '{"reason": "a", "vote": "1"}'
    assert len(list(written_ballots("[" * 90 + ballot))) == 1
    assert not list(written_ballots("[" * 100_000 + ballot))
