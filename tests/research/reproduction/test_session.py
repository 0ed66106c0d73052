"""A reproduction whose process is killed is continued by the same command."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.research.reproduction.test_choice75 import ScriptedModel, assert_table_3, released
from tests.support.command_line import dramaturg, finish, start
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.reproductions import environment, read_csv

pytestmark = [pytest.mark.data, pytest.mark.slow, pytest.mark.timeout(300)]

LIMIT = 120
KILLED_AFTER = 150
"""The calls that are answered before the process is killed, of four for each scenario."""
CONCURRENCY = 8
OPEN_CALLS = CONCURRENCY * 2 * 2
"""The maximum number of open calls: a run for each model, whose samples have two calls, naive and story."""


def unsettled_calls(ledger: Path) -> int:
    """The calls that a ledger has records of: sent, and their answers are not stored."""
    with closing(sqlite3.connect(ledger)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM dramaturg_calls").fetchone()
        return int(count)


async def answers(server: OpenAIServer, count: int) -> None:
    """Waits until a server has answered this often."""
    async with asyncio.timeout(100):
        while server.answered.total() < count:  # noqa: ASYNC110 - the server only counts
            await asyncio.sleep(0.01)


async def test_the_same_command_goes_on_after_a_kill_and_buys_nothing_twice(
    data_dir: Path, tmp_path: Path
) -> None:
    scenarios = list(released(data_dir / "choice75"))
    dev = [one for one in scenarios if one.split == "dev"]
    kept = [dev[index * len(dev) // LIMIT] for index in range(LIMIT)]
    out = tmp_path / "out"
    command = ("research", "reproduce", "choice75", "--data", data_dir, "-o", out, "--limit", str(LIMIT))
    options = ("--model", "a", "--model", "b", "--concurrency", str(CONCURRENCY))
    async with OpenAIServer(ScriptedModel(scenarios), latency=0.05, models=("a", "b", "judge")) as server:
        variables = environment(server, tmp_path)
        async with start(*command, *options, environment=variables) as process:
            await answers(server, KILLED_AFTER)
            process.kill()
            await process.wait()
        unsettled = unsettled_calls(tmp_path / "data-home" / "dramaturg" / "completions.sqlite3")
        before = sum(server.calls.values())
        assert before < LIMIT * 4
        assert not (out / "table-3.csv").exists()
        async with start(*command, *options, environment=variables) as process:
            finished = await finish(process)
        assert finished.code == 0, finished.err
        bought = server.calls.copy()
        async with start(*command, *options, environment=variables) as process:
            again = await finish(process)
    assert again.code == 0, again.err
    # A new run is announced with its cost; these commands found the run of the first.
    assert "model calls:" not in finished.err + again.err
    assert_table_3(read_csv(out / "table-3.csv"), kept)
    twice = sum(count - 1 for count in bought.values())
    # A call is sent after the commit of its record, and ends after the commit of its answer, with which the
    # record ends. So what is bought twice was open at the kill, and has a record.
    assert twice <= unsettled <= OPEN_CALLS, (twice, unsettled, before)
    assert before + len(bought) > len(kept) * 4, "the second process bought everything"
    # A complete reproduction makes no call at all.
    assert server.calls == bought


async def test_a_run_that_the_provider_stopped_goes_on_after_the_correction(
    data_dir: Path, tmp_path: Path
) -> None:
    paid = False

    def answer(body: Body) -> Answer:
        if not paid:
            return Answer("the quota is used up", status=402, error_code="insufficient_quota")
        refused = body["messages"][-1]["content"].count("e") % 2
        return Answer("", refusal="No.") if refused else Answer("Option 1")

    out = tmp_path / "out"
    command = (
        "research",
        "reproduce",
        "choice75",
        "--data",
        data_dir,
        "-o",
        out,
        "--limit",
        "30",
        "--model",
        "a",
    )
    async with OpenAIServer(answer, models=("a", "judge")) as server:
        variables = environment(server, tmp_path)
        stopped = await dramaturg(*command, environment=variables)
        assert stopped.code == 1
        assert "PAUSED" in stopped.err
        unpaid = server.calls.total()
        assert unpaid < 60
        assert ": paused; " in (out / "README.md").read_text()
        paid = True
        finished = await dramaturg(*command, environment=variables)
    assert finished.code == 0, finished.err
    assert "model calls:" not in finished.err
    assert server.answered.total() == 60
    index = (out / "README.md").read_text()
    assert ": succeeded; 30 samples, 0 failed; 60 judgements, abstained: none" in index
    # A refusal by a model under test is a wrong answer, and is named.
    assert "REFUSED" in index


async def test_an_interrupted_command_says_that_it_can_be_continued(data_dir: Path, tmp_path: Path) -> None:
    command = (
        "research",
        "reproduce",
        "choice75",
        "--data",
        data_dir,
        "-o",
        tmp_path / "out",
        "--model",
        "a",
    )
    async with (
        OpenAIServer(lambda _: "Option 1", latency=0.2, models=("a", "judge")) as server,
        start(*command, environment=environment(server, tmp_path)) as process,
    ):
        await answers(server, 20)
        process.send_signal(signal.SIGINT)
        stopped = await finish(process)
    assert stopped.code == 130
    assert "interrupted; the same command continues" in stopped.err
