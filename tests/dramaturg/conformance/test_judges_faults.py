"""A judge with one fault fails the one check that is about it."""

from __future__ import annotations

import pytest

from dramaturg import conformance
from dramaturg.conformance import checked_role
from dramaturg.testing import serve
from tests.dramaturg.conformance.faults import FAULTS, Fault, FaultyJudge


async def broken(fault: Fault) -> dict[str, str]:
    """The checks that fail, with how."""
    async with serve(fault.make()) as server:
        outcomes = await conformance.run(checked_role("judge"), server.target, timeout=20)
    return {one.check.name: one.failure for one in outcomes if one.broken}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_judge_fails_exactly_what_it_breaks(fault: Fault) -> None:
    failures = await broken(fault)
    assert failures.keys() == {fault.check}
    assert fault.message in failures[fault.check]


async def test_without_a_fault_it_fails_nothing() -> None:
    async with serve(FaultyJudge().contract()) as server:
        outcomes = await conformance.run(checked_role("judge"), server.target, timeout=20)
    assert [one.failure for one in outcomes if one.broken] == []
