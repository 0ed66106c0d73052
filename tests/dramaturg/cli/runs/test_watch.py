"""Commands that wait for the end of a run: lost connections, exit codes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.cli.runs.watch import EXIT_CODES, watch_run
from dramaturg.client import DramaturgClient
from dramaturg.testing import until
from tests.support.command_line import ROOT
from tests.support.run_service import RUN, ScriptedRuns, run_service, scripted_runs

LOST, AGAIN = "the connection is lost", "connected again"

_ROW = re.compile(r"^\| (`[A-Z_`, ]+`) \| (none|`[A-Z_]+`) \| .* \| (\d|the command waits) \|$", re.MULTILINE)


def test_the_documented_table_has_every_state_and_outcome_with_its_exit_code() -> None:
    rows = _ROW.findall((ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8"))
    outcomes, states = set(), set()
    for named, outcome, code in rows:
        for state in re.findall(r"[A-Z_]+", named):
            states.add(f"RUN_STATE_{state}")
            waits = code == "the command waits"
            if not waits:
                assert EXIT_CODES[run_pb2.RunState.Value(f"RUN_STATE_{state}")] == int(code), (state, outcome)
            assert waits is (outcome == "none"), (state, outcome)
        outcomes.add("RUN_OUTCOME_" + (outcome.strip("`") if outcome != "none" else "UNSPECIFIED"))
    assert outcomes == set(run_pb2.RunOutcome.keys())
    assert states == set(run_pb2.RunState.keys()) - {"RUN_STATE_UNSPECIFIED"}


def test_every_documented_end_is_a_comment_of_the_contract() -> None:
    contract = (ROOT / "protos/dramaturg/api/evaluation/v1/run.proto").read_text(encoding="utf-8")
    comments = dict(re.findall(r"((?:  // [^\n]*\n)+)  (RUN_OUTCOME_[A-Z_]+) =", contract))
    stated = {name: set(re.findall(r"RUN_STATE_[A-Z]+", comment)) for comment, name in comments.items()}
    rows = _ROW.findall((ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8"))
    documented: dict[str, set[str]] = {}
    for named, outcome, _ in rows:
        states = {f"RUN_STATE_{state}" for state in re.findall(r"[A-Z_]+", named)}
        if outcome != "none":
            documented.setdefault("RUN_OUTCOME_" + outcome.strip("`"), set()).update(states)
    assert {name: stated[name] for name in documented} == documented


class _EndlessRuns(ScriptedRuns):
    """Its run goes on until its gateway ends."""

    async def WatchRun(self, request: pb.WatchRunRequest, context: Any) -> AsyncIterator[pb.WatchRunResponse]:
        self.cursors.append(request.cursor)
        yield pb.WatchRunResponse(cursor=1, progress=self._progress(1))
        await asyncio.Event().wait()


async def test_a_gateway_that_starts_again_at_its_port_is_watched_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = ""

    def is_shown(text: str) -> bool:
        nonlocal shown
        shown += capsys.readouterr().err
        return text in shown

    first, second = _EndlessRuns(4), scripted_runs(4)  # type: ignore[abstract]
    async with run_service(first) as target:
        client = DramaturgClient(target)
        watching = asyncio.create_task(watch_run(client.runs, RUN))
        await until(lambda: is_shown("0 of 4 samples") and bool(first.cursors))
    await until(lambda: is_shown(LOST))
    async with run_service(second, port=int(target.rpartition(":")[2])), client:
        run = await asyncio.wait_for(watching, 30)
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED
    assert second.cursors == [1]
    assert is_shown(f"{RUN} SUCCEEDED")
    assert (shown.count(LOST), shown.count(AGAIN)) == (1, 1)


async def test_attempts_that_fail_one_after_another_are_one_loss(capsys: pytest.CaptureFixture[str]) -> None:
    scripted = scripted_runs(2, [grpc.StatusCode.UNAVAILABLE] * 3)
    async with run_service(scripted) as target, DramaturgClient(target) as client:
        await watch_run(client.runs, RUN)
    assert scripted.cursors == [0, 2, 2, 2]
    lines = capsys.readouterr().err.splitlines()
    assert [(LOST in line) - (AGAIN in line) for line in lines if LOST in line or AGAIN in line] == [1, -1]
    assert len(lines) == len(set(lines))
