"""A reproduction whose process is killed is continued by the same command."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.research.reproduction import (
    test_abseval_recount as abseval_recount,
)
from tests.research.reproduction import (
    test_choice75_recount as choice75_recount,
)
from tests.research.reproduction import (
    test_drpe_recount as drpe_recount,
)
from tests.research.reproduction import (
    test_proscript_recount as proscript_recount,
)
from tests.research.reproduction import (
    test_simulbench_recount as simulbench_recount,
)
from tests.support.command_line import dramaturg, finish, start
from tests.support.openai_server import Answer, Body, OpenAIServer, fingerprint
from tests.support.reproductions import SECONDS, environment

pytestmark = [pytest.mark.data, pytest.mark.slow, pytest.mark.timeout(540)]

CONCURRENCY = 2
OPEN_CALLS = 16
"""The most calls that are open at once: of two samples, with up to eight each."""


class Case(NamedTuple):
    """A reproduction of few samples."""

    data: Path
    respond: Callable[[Body], Answer]
    options: Sequence[str]


def abseval(folder: Path, _: Path) -> Case:
    """A model writes scripts of twelve tasks, which agents judge, then the single judge."""
    abseval_recount.write_tasks(folder / "coscript" / "test_data.json")
    options = ("--model", "llama-7b", "--judge-model", "judge", "--limit", "12")
    return Case(folder, abseval_recount.Server(), options)


def choice75(_: Path, data: Path) -> Case:
    """Two models choose in sixteen scenarios."""
    model = choice75_recount.Model(choice75_recount.development(data))
    return Case(data, model, ("--model", "model-a", "--model", "model-b", "--limit", "16"))


def drpe(folder: Path, _: Path) -> Case:
    """A judge with several numbers of roles, on the summaries of eight articles."""
    (folder / "cnn_human.json").write_text(json.dumps(drpe_recount.study("cnn", 8)))
    return Case(folder, drpe_recount.Judge(), ("--model", "m"))


def proscript(folder: Path, _: Path) -> Case:
    """Two models predict edges, write scripts, and order the events of their scripts."""
    proscript_recount.write(folder / "proscript_dev.json")
    options = ("--model", "model-a", "--model", "model-b", "--limit", "6")
    return Case(folder, proscript_recount.Server(), options)


def simulbench(folder: Path, _: Path) -> Case:
    """Two models continue sixteen dialogues, are rated, then compared."""
    scripts = simulbench_recount.scripts()
    simulbench_recount.write(scripts, folder / "simulbench_all.jsonl")
    options = ("--model", "model-a", "--model", "model-b", "--judge-model", "judge", "--limit", "16")
    return Case(folder, simulbench_recount.Models(scripts), options)


PAPERS = (abseval, choice75, drpe, proscript, simulbench)


def unsettled_calls(ledger: Path) -> int:
    """The calls that a ledger has records of and no answer: what refusals leave is not open."""
    with closing(sqlite3.connect(ledger)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM dramaturg_calls WHERE NOT unstored").fetchone()
        return int(count)


async def answers(server: OpenAIServer, count: int) -> None:
    """Waits until a server has answered this often."""
    async with asyncio.timeout(100):
        while server.answered.total() < count:  # noqa: ASYNC110 - the server only counts
            await asyncio.sleep(0.01)


def tables(out: Path) -> Mapping[str, str]:
    """The tables of a folder."""
    return {file.name: file.read_text() for file in sorted(out.glob("*.csv"))}


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.__name__)
async def test_the_same_command_goes_on_after_a_kill_and_buys_nothing_twice(
    data_dir: Path, tmp_path: Path, paper: Callable[[Path, Path], Case]
) -> None:
    (tmp_path / "data").mkdir()
    case = paper(tmp_path / "data", data_dir)
    command = ["research", "reproduce", paper.__name__, "--data", str(case.data), *case.options]
    command += ["--concurrency", str(CONCURRENCY)]
    names = [value for name, value in pairwise(case.options) if name == "--model"]
    usable = set[str]()
    killed: asyncio.subprocess.Process | None = None
    last = 0

    def respond(body: Body) -> Answer:
        answer = case.respond(body)
        # Refusals, answers at the token cap and those without the form that was asked for are not stored.
        formed = answer.text[:1] == "{" if "response_format" in body else answer.text
        if formed and answer.refusal is None and answer.finish_reason == "stop":
            usable.add(fingerprint(body))
        if killed is not None and server.calls.total() == last:
            killed.kill()
        return answer

    server = OpenAIServer(respond, models=(*names, "judge"))
    async with server:
        undisturbed = environment(server, tmp_path / "undisturbed")
        async with start(*command, "-o", tmp_path / "undisturbed", environment=undisturbed) as process:
            finished = await finish(process, timeout=SECONDS)
        assert finished.code in {0, 4}, finished.err
        whole = server.calls.total()
        server.forget()
        last, variables = 2 * whole // 3, environment(server, tmp_path)
        async with start(*command, "-o", tmp_path / "out", environment=variables) as process:
            killed = process
            await process.wait()
            killed = None
        before = server.calls.copy()
        assert not tables(tmp_path / "out").keys() & {"table-1.csv", "table-3.csv", "table-5.csv"}
        unsettled = unsettled_calls(tmp_path / "data-home" / "dramaturg" / "completions.sqlite3")
        async with start(*command, "-o", tmp_path / "out", environment=variables) as process:
            again = await finish(process, timeout=SECONDS)
    assert again.code == finished.code, again.err
    assert tables(tmp_path / "out") == tables(tmp_path / "undisturbed")
    # A call is sent after the commit of its record, and ends after the commit of its answer, with which the
    # record ends. So what is bought twice was open at the kill, and has a record.
    twice = [mark for mark, count in server.calls.items() if count > 1 and mark in usable]
    assert len(twice) <= unsettled <= OPEN_CALLS, (len(twice), unsettled, whole)
    assert last <= before.total() < whole
    assert server.calls.total() < before.total() + whole, "the second process bought everything"


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
