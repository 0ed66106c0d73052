"""The objective roles that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_OBJECTIVE
from dramaturg.judge import role_sets
from dramaturg.judge.role_sets import UnknownRoleSetError, role_set
from dramaturg.service.validation import validate


@pytest.mark.parametrize("name", role_sets.NAMES)
def test_every_set_has_different_objective_roles_within_the_limits(name: str) -> None:
    roles = role_set(name)
    assert len({role.type for role in roles}) == len(roles) >= 3
    for role in roles:
        assert role.origin == ROLE_ORIGIN_OBJECTIVE
        validate(role)


def test_the_fixed_roles_are_the_six_of_the_paper() -> None:
    assert [role.type.split()[0] for role in role_set(role_sets.FIXED_ROLES)] == [
        "Student",
        "Business",
        "Politician",
        "General",
        "Critic",
        "News",
    ]


def test_every_file_is_a_set() -> None:
    files = Path(role_sets.__file__).parent.glob("*.json")
    assert sorted(file.stem for file in files) == sorted(role_sets.NAMES)


def test_an_unknown_set_is_told_with_those_known() -> None:
    with pytest.raises(UnknownRoleSetError, match=r"'poetry'.*summarisation"):
        role_set("poetry")
