"""``dramaturg providers``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app
from tests.support.openai_server import OpenAIServer, in_thread


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    monkeypatch.setenv("MODEL", "test-model")


def test_providers_and_their_models_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(OpenAIServer(lambda _: "ready")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        table = CliRunner().invoke(app, ["providers"])
        listed = json.loads(CliRunner().invoke(app, ["providers", "--json"]).stdout)
    assert "environment" in table.stdout
    assert "next: dramaturg providers check environment/test-model" in table.stderr
    assert listed == {
        "default_model": "environment/test-model",
        "providers": [{"provider": "environment", "models": ["test-model"], "error": ""}],
    }


def test_a_check_says_what_works_and_ends_with_1_where_something_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with in_thread(OpenAIServer(lambda _: "ready")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        checked = CliRunner().invoke(app, ["providers", "check", "--json"])
        table = CliRunner().invoke(app, ["providers", "check"])
    assert checked.exit_code == table.exit_code == 1
    found = {one["feature"]: one["status"] for one in json.loads(checked.stdout)["features"]}
    assert found == {
        "connection": "ok",
        "text": "ok",
        "json schema": "failed",
        "json object": "failed",
        "logprobs": "ok",
        "long prompt": "ok",
        "reasoning": "not supported",
        "usage": "ok",
    }
    assert "the answer does not fit the schema" in " ".join(table.stdout.split())


def test_the_connection_alone_makes_no_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(OpenAIServer(lambda _: "ready")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        checked = CliRunner().invoke(app, ["providers", "check", "--connection"])
        assert not server.requests
    assert checked.exit_code == 0
    assert "next: dramaturg eval FILE --judge-model environment/test-model" in checked.stderr


def test_without_a_provider_it_says_how_to_configure_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    listed = CliRunner().invoke(app, ["providers"])
    checked = CliRunner().invoke(app, ["providers", "check"])
    assert "OPENAI_API_KEY" in listed.stdout
    assert checked.exit_code == 1
    assert "no model provider is configured" in checked.stderr


def test_judges_says_which_model_they_use_and_whether_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(OpenAIServer(lambda _: "ready")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        well = CliRunner().invoke(app, ["judges"], env={"COLUMNS": "200"})
        assert not server.requests
    ill = CliRunner().invoke(app, ["judges"], env={"COLUMNS": "200"})
    assert (well.exit_code, ill.exit_code) == (0, 0)
    critic = next(line for line in well.stdout.splitlines() if line.startswith("critic") and " llm " in line)
    assert critic.split()[4:6] == ["environment/test-model", "yes"]
    critic = next(line for line in ill.stdout.splitlines() if line.startswith("critic") and " llm " in line)
    assert critic.split()[4:6] == ["environment/test-model", "no"]
    assert ill.stdout.count("environment/test-model: cannot be reached") == 1
