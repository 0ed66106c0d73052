"""Servers that the kit starts: the drain, and commands that start nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dramaturg.conformance import StartError, checked_role, checks_of, run
from dramaturg.conformance.kit import Outcome, run_checks, started
from dramaturg.judge.roles import CRITIC
from tests.support.command_line import ROOT, dramaturg

JUDGE = ROOT / "examples" / "judges" / "terse_critic.py"

PROGRAM = """
import asyncio, os, runpy, signal, sys
from dramaturg.judge.contracts import judge_contract, serve
base = runpy.run_path({judge!r})["TerseCritic"]
class Slow(base):
    async def judge(self, item):
        await asyncio.sleep(0.3)
        return await base.judge(self, item)
{fault}
serve(judge_contract(Slow()))
"""

DIES = """
import dramaturg.service.server as server
class Loop(asyncio.SelectorEventLoop):
    def add_signal_handler(self, number, call): signal.signal(number, lambda *_: os._exit(1))
server._loop_factory = lambda: Loop
"""
STAYS = """
import dramaturg.service.server as server
drain = server.Server.drain
async def never(self):
    await drain(self)
    await asyncio.Event().wait()
server.Server.drain = never
"""
SILENT = """
from dramaturg.service.health import HealthServicer
HealthServicer.leave = HealthServicer.shut_down = lambda self: None
"""
FAULTS = {
    "none": ("", ""),
    "dies": (DIES, "of 50 calls at once are lost"),
    "stays": (STAYS, "the process runs 5 seconds after SIGTERM"),
    "silent": (SILENT, "did not get NOT_SERVING"),
}


async def drained(command: Sequence[str]) -> str:
    """The failure of the check of the drain."""
    role = checked_role("critic")
    checks = [one for one in checks_of(role) if one.name == "drains"]
    async with started(command, role.contract) as process:
        (outcome,) = await run_checks(checks, role, process.target, timeout=5, process=process)
        assert not outcome.skipped
        return outcome.failure


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
async def test_the_drain_is_checked(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a server that closes at once loses calls that it has received and not yet accepted.
    monkeypatch.setenv("DRAMATURG_SERVER_DRAIN_DELAY_SECONDS", "1")
    fault, message = FAULTS[name]
    program = tmp_path / "judge.py"
    program.write_text(PROGRAM.format(judge=str(JUDGE), fault=fault), encoding="utf-8")
    failure = await drained([sys.executable, str(program), "--port", "{port}"])
    assert message in failure
    assert bool(message) == bool(failure)


@pytest.mark.slow
async def test_a_command_is_checked_whole(tmp_path: Path) -> None:
    path = tmp_path / "conformance.xml"
    command = f"{sys.executable} {JUDGE}"
    finished = await dramaturg(
        "judges", "check", "critic", "--json", "--junit", path, "--", sys.executable, JUDGE
    )
    assert finished.code == 0
    assert [one["name"] for one in finished.json["checks"] if one["skipped"]] == [
        "keeps-to-scales",
        "judges-each-unit",
        "takes-what-it-says",
    ]
    assert f'name="target" value="{command}"' in path.read_text(encoding="utf-8")


@pytest.mark.slow
async def test_a_command_is_certified() -> None:
    """A judge that reports equal steps alone misses other faults, and raises no false alarm."""
    finished = await dramaturg("judges", "certify", "critic", f"{sys.executable} {JUDGE}", "--json")
    assert finished.code == 1
    assert not finished.json["errors"]
    found = {one["name"]: one for one in finished.json["properties"]}
    assert found["missed faults"]["conclusion"] == "outside"
    assert 0 < found["missed faults"]["value"] < 1
    assert found["false alarms"]["value"] == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-program", "cannot be started"),
        (f"{sys.executable} -c 'print(\"no port\"); exit(3)'", "exit code 3; its output ends with:\nno port"),
    ],
)
async def test_a_command_that_starts_no_server_is_refused(command: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        await run(CRITIC, command=command)


async def test_an_address_where_no_server_listens_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramaturg.conformance.kit.CONNECT_SECONDS", 0.2)
    outcomes: list[Outcome] = []
    with pytest.raises(StartError, match=r"no connection to 127\.0\.0\.1:1 within"):
        await run(CRITIC, "127.0.0.1:1", on_outcome=outcomes.append)
    assert not outcomes


async def test_one_of_address_and_command_is_needed() -> None:
    for target, command in (("", ""), ("localhost:1", "true")):
        with pytest.raises(ValueError, match="give the address of the server, or the command"):
            await run(CRITIC, target, command=command)
