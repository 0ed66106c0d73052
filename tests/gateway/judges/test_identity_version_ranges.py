from __future__ import annotations

import pytest

from gateway.judges.identity import VersionRange


@pytest.mark.parametrize(
    ("requirement", "inside", "outside"),
    [
        ("1.4.2", ["1.4.2", "v1.4.2", "1.4.2+build.7"], ["1.4.3", "1.4", "2.0.0", ""]),
        ("1.4", ["1.4.0", "1.4"], ["1.4.1"]),
        (">=1.4,<2", ["1.4.0", "1.9.12", "2.0.0-rc.1"], ["1.3.9", "1.4.0-rc.1", "2.0.0", "main"]),
        (">1.0.0-alpha.9", ["1.0.0-alpha.10", "1.0.0-beta", "1.0.0"], ["1.0.0-alpha.9", "1.0.0-alpha.1"]),
        ("!=1.5.0, <=2", ["1.4.0", "2.0.0"], ["1.5.0", "2.0.1"]),
        ("7c1f0ab", ["7c1f0ab"], ["7c1f0ac", "1.0.0"]),
        ("!=7c1f0ab", ["1.0.0", "main"], ["7c1f0ab"]),
    ],
)
def test_versions_are_compared_with_a_requirement(
    requirement: str, inside: list[str], outside: list[str]
) -> None:
    wanted = VersionRange.parse(requirement)
    assert [version for version in inside if not wanted.contains(version)] == []
    assert [version for version in outside if wanted.contains(version)] == []


@pytest.mark.parametrize(
    ("requirement", "fault"),
    [
        (">=1.4,", "is no version"),
        ("~=1.4", "no semantic version|is no version"),
        (">=main", "'main' is no semantic version"),
        ("1.4 2.0", "is no version"),
        ("", "is no version"),
    ],
)
def test_a_requirement_that_cannot_be_read_is_refused(requirement: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        VersionRange.parse(requirement)
