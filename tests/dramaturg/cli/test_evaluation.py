"""A file is evaluated as a run, in a gateway that the command starts."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app
from dramaturg.testing import until
from tests.support.command_line import dramaturg, finish, read_jsonl, start
from tests.support.openai_server import Answer, Body, OpenAIServer, in_thread
from tests.support.scripted_model import approve


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    monkeypatch.setenv("MODEL", "m")


def rows(folder: Path) -> str:
    """Tasks with a script each."""
    lines = [
        {
            "task": {"goal": f"Paint a wall, number {number}"},
            "candidates": [{"id": "a", "text": "1. Buy paint.\n2. Paint."}],
        }
        for number in range(5)
    ]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("Incorrect API key provided", status=401), "Incorrect API key provided"),
        (Answer("The model `m` does not exist", status=404, error_code="model_not_found"), "does not exist"),
        (Answer("no credit", status=402), "no credit"),
    ],
)
def test_where_no_model_can_be_called_the_provider_s_words_are_told(
    answer: Answer, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_remedied = False

    def respond(body: Body) -> Answer | str:
        if not is_remedied:
            return answer
        return approve(body) if "response_format" in body else Answer("no messages", status=400)

    command = ["eval", "--kind", "scripts", rows(tmp_path), "--out", str(tmp_path / "out"), "--json"]
    with in_thread(OpenAIServer(respond)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        result = CliRunner().invoke(app, command)
        is_remedied = True
        again = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert words in result.stderr
    # The first samples are not kept as they are.
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["judgement_count"] == 35


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
async def test_the_same_command_goes_on_and_buys_nothing_twice(
    end: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = Counter[str]()
    is_slow = asyncio.Event()

    async def answer(body: Body) -> Answer | str:
        if "response_format" not in body:  # a check of the model, which is not bought
            return Answer("no messages", status=400)
        prompt = json.dumps(body["messages"])
        if "number 4" in prompt and not is_slow.is_set():
            is_slow.set()
            await asyncio.sleep(60)
        answered[prompt] += 1
        return approve(body)

    file, out, data = rows(tmp_path), tmp_path / "out", tmp_path / "xdg" / "dramaturg"
    command = ("eval", "--kind", "scripts", file, "--out", out, "--concurrency", "1", "--json")
    async with OpenAIServer(answer) as server:
        environment = {
            "OPENAI_BASE_URL": server.base_url,
            "DRAMATURG_GENERATION_LEDGER": str(tmp_path / "ledger.sqlite3"),
        }
        async with start(*command, environment=environment) as process:
            await until(is_slow.is_set, 60)
            process.send_signal(end)
            stopped = await finish(process)
        kept = list((data / "evaluations").iterdir())
        ended = await dramaturg(*command, environment=environment)
    if end is signal.SIGINT:
        assert stopped.code == 130, stopped.err
        assert "interrupted: 4 of 5; the same command goes on" in stopped.err
        assert stopped.json["sample_count"] == 4
    assert len(kept) == 1
    assert ended.code == 0, ended.err
    assert ended.json["sample_count"] == 5
    assert [row["task"]["goal"][-1] for row in read_jsonl(out / "results.jsonl")] == list("01234")
    # Calls that were in flight may be bought again: those of the last sample.
    assert not [prompt for prompt, count in answered.items() if count > 1 and "number 4" not in prompt]
    assert not list((data / "evaluations").iterdir())


async def test_a_folder_with_other_results_is_refused_unless_they_are_replaced(tmp_path: Path) -> None:
    file, out = rows(tmp_path), tmp_path / "out"
    command = ("eval", "--kind", "scripts", file, "--out", out, "--json")
    first = await dramaturg(*command, "--limit", "1")
    again = await dramaturg(*command, "--limit", "1", "--concurrency", "2")
    other_rows = await dramaturg(*command, "--limit", "2")
    other_options = await dramaturg(*command, "--limit", "1", "--gold-answer", "none")
    assert (first.code, again.code) == (0, 0), first.err
    for refused in (other_rows, other_options):
        assert (refused.code, refused.out) == (2, "")
        assert "--replace" in refused.err
    assert len(read_jsonl(out / "results.jsonl")) == 1
    replaced = await dramaturg(*command, "--limit", "2", "--replace")
    assert replaced.code == 0, replaced.err
    assert len(read_jsonl(out / "results.jsonl")) == 2
    (out / "evaluation.json").unlink()
    unknown = await dramaturg(*command, "--limit", "2")
    assert unknown.code == 2


def test_sampling_options_reach_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(body: Body) -> Answer:
        return Answer("", refusal="No.")

    options = ("--temperature", "0.5", "--top-p", "0.9", "--max-output-tokens", "700")
    more = ("--reasoning-effort", "low", "--sampling-seed", "3", "--limit", "1")
    with in_thread(OpenAIServer(refuse)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        CliRunner().invoke(
            app,
            ["eval", "--kind", "scripts", rows(tmp_path), "--out", str(tmp_path / "out"), *options, *more],
        )
        body = next(body for body in server.bodies if body["messages"])
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 700)
    assert (body["reasoning_effort"], body["seed"]) == ("low", 3)
