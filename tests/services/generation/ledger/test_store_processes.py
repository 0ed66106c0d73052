"""Who lives and who is dead."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

from services.generation.ledger.store import Process, living


def test_on_this_machine_the_operating_system_knows() -> None:
    process = Process.this()
    assert not process.is_dead(lease_left=-100)
    assert dataclasses.replace(process, started="1").is_dead(lease_left=100)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert dataclasses.replace(process, pid=ended.pid).is_dead(lease_left=100)


def test_elsewhere_the_lease_decides() -> None:
    elsewhere = dataclasses.replace(Process.this(), machine="another")
    unknown = dataclasses.replace(Process.this(), machine="")
    for process in (elsewhere, unknown):
        assert process.is_dead(lease_left=-0.1)
        assert not process.is_dead(lease_left=0.1)


def test_the_living_are_named_by_their_ids() -> None:
    here, elsewhere = Process.this(), dataclasses.replace(Process.this(), machine="another")
    assert here.id != elsewhere.id
    assert living([(here, -1), (elsewhere, -1)]) == {here.id}
