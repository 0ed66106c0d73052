"""A service with one fault fails the one check that is about it, of each contract."""

from __future__ import annotations

import sys

import pytest

from dramaturg import conformance
from dramaturg.conformance import CHECKED_ROLES, checked_role, checks_of
from dramaturg.testing import serve
from tests.dramaturg.conformance import faults, services
from tests.dramaturg.conformance.service_faults import FAULTS, SOUND, ServiceFault

DRAIN = "drains"
NAMED = {
    "embedding": {
        "keeps-its-model",
        "embeds-each-text-by-itself",
        "tells-texts-apart",
        "marks-truncated-texts",
        "embeds-tokens",
    },
    "generation": {
        "keeps-to-the-schema",
        "reports-possible-usage",
        "buys-once",
        "answers-each-of-a-batch",
        "keeps-requests-apart",
        "refuses-unknown-models",
    },
}
"""The checks whose faults are those of tests in ``test_embedding`` and ``test_generation``."""


@pytest.mark.parametrize("role", CHECKED_ROLES)
def test_each_check_of_each_contract_has_a_fault(role: str) -> None:
    checked = checked_role(role)
    broken = {fault.check for fault in FAULTS if fault.role == role}
    if not broken:
        assert checked.contract == checked_role("judge").contract
        broken = {fault.check for fault in faults.FAULTS}
    assert {one.name for one in checks_of(checked)} == broken | {DRAIN}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault.check not in NAMED.get(fault.role, ())], ids=str
)
async def test_a_service_fails_exactly_what_it_breaks(fault: ServiceFault) -> None:
    async with SOUND[fault.role].open() as contract, serve(fault.change(contract)) as server:
        outcomes = await conformance.run(checked_role(fault.role), server.target, timeout=30)
    assert [one.check.name for one in outcomes if one.broken] == [fault.check]


@pytest.mark.slow
@pytest.mark.parametrize("role", SOUND)
@pytest.mark.parametrize("fault", ["none", "dies"])
async def test_a_service_that_does_not_drain_fails_that_alone(role: str, fault: str) -> None:
    command = [sys.executable, "-m", services.__name__, role, fault, "--port", "{port}"]
    outcomes = await conformance.run(checked_role(role), command=command, timeout=30)
    failures = {one.check.name: one.failure for one in outcomes if one.broken}
    assert not [one for one in outcomes if one.skipped and one.check.name == DRAIN]
    if fault == "none":
        assert failures == {}
    else:
        assert failures.keys() == {DRAIN}
        assert "of 50 calls at once are lost" in failures[DRAIN]
