"""Our judges and agents keep the contracts of their roles.

``test_embedding``, ``test_generation`` and ``test_contracts`` check the other services, and tests of
their own the judges of texts.
"""

from __future__ import annotations

import pytest

from tests.dramaturg.conformance.table import check, judges

AGENTS = ("synthesize", "critic", "execute", "commonsense")
TEXTS = "rubric-judge"
OURS = (*AGENTS, *AGENTS, "script-judge", TEXTS, TEXTS, "challenge-judge", "rating-judge", "pair-judge")
"""The roles of our judges. The agents come with a model, and offline."""


@pytest.mark.parametrize(
    ("place", "role"),
    [(place, role) for place, role in enumerate(OURS) if role != TEXTS],
)
async def test_our_services_keep_their_contracts(place: int, role: str) -> None:
    async with judges() as ours:
        assert [name for name, _ in ours] == [*OURS]
        row = await check(role, ours[place][1].open())
    assert len(row.outcomes) > 10
    assert [f"{one.check.name}: {one.failure}" for one in row.outcomes if one.broken] == []
