"""Roles read from any answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.judging.v1.pair_judge_service_pb2 import Role
from dramaturg.judge.answers import UnclearAnswerError
from services.roles.generator import RolesForm, wording

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("y" * 201),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "description", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.lists(ANYTHING, max_size=6), st.lists(ANYTHING, max_size=6), st.integers(1, 4), st.integers(1, 4))
def test_every_entry_is_a_role_or_told(coarse: list[Any], fine: list[Any], first: int, second: int) -> None:
    named = RolesForm({"coarse": first, "fine": second}).parse({"coarse": coarse, "fine": fine})
    assert len(named.roles) + len(named.dropped) == len(coarse) + len(fine)
    assert len({wording(role) for role in named.roles}) == len(named.roles) <= first + second
    assert all(role.type.strip() and role.description.strip() for role in named.roles)
    assert [role.origin for role in named.roles] == sorted(role.origin for role in named.roles)


@pytest.mark.parametrize("value", [None, [], "coarse", 3])
def test_what_is_no_object_cannot_be_read(value: Any) -> None:
    with pytest.raises(UnclearAnswerError):
        RolesForm({"coarse": 1}).parse(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Critic", "Reads."), ("CRITIC", "reads")),
        (("Die-hard fan", "Knows all."), ("Die hard  fan", "Knows all!")),
        (("Ｃritic", "Reads."), ("Critic", "Reads.")),
    ],
)
def test_wording_disregards_how_words_are_set(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert wording(Role(type=one[0], description=one[1])) == wording(
        Role(type=other[0], description=other[1])
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Critic", "Reads."), ("Critic", "Writes.")),
        (("News author", "checks"), ("News", "author checks")),
        (("पाठक", "की"), ("पाठक", "का")),  # the words differ in a vowel sign
    ],
)
def test_wording_tells_words_apart(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert wording(Role(type=one[0], description=one[1])) != wording(
        Role(type=other[0], description=other[1])
    )
