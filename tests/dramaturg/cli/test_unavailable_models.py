"""An evaluation whose models cannot be called ends with its first sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app
from tests.support.openai_server import Answer, Body, OpenAIServer, in_thread


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
def test_it_ends_with_the_provider_s_words(
    answer: Answer, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(OpenAIServer(lambda _: answer)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        result = CliRunner().invoke(
            app, ["evaluate", "scripts", rows(tmp_path), "--out", str(tmp_path / "out")]
        )
        goals = {goal for body in server.bodies for goal in range(5) if f"number {goal}" in json.dumps(body)}
    assert result.exit_code == 1
    assert words in result.stderr
    assert goals == {0}
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 1


def test_sampling_options_reach_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(body: Body) -> Answer:
        return Answer("", refusal="No.")

    options = ("--temperature", "0.5", "--top-p", "0.9", "--max-output-tokens", "700")
    more = ("--reasoning-effort", "low", "--sampling-seed", "3", "--limit", "1")
    with in_thread(OpenAIServer(refuse)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        CliRunner().invoke(
            app, ["evaluate", "scripts", rows(tmp_path), "--out", str(tmp_path / "out"), *options, *more]
        )
        body = server.bodies[0]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 700)
    assert (body["reasoning_effort"], body["seed"]) == ("low", 3)
