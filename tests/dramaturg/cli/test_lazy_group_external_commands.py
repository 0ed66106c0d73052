from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from dramaturg.cli import lazy_group
from dramaturg.cli.main import app
from tests.support.command_line import ROOT

PROJECT = tomllib.loads((ROOT / "research" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ABSENT = ("absent_services.launch.commands:app",)


def entries(*values: str, name: str = "platform") -> Callable[..., Sequence[EntryPoint]]:
    return lambda group: [EntryPoint(name, value, group) for value in values]


def test_serve_names_the_services_that_there_are() -> None:
    done = CliRunner().invoke(app, ["serve", "poet"])
    assert done.exit_code == 2
    assert "commonsense" in done.stderr


def test_serve_refuses_a_backend_that_the_service_has_not() -> None:
    done = CliRunner().invoke(app, ["serve", "critic", "--backend", "oracle"])
    assert done.exit_code == 2
    assert "offline" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["critic", "poet"], "'poet' is not a service"),
        (["critic", "execute", "critic"], "critic: name a service once"),
        (["critic", "embedding", "--backend", "oracle"], "of critic: llm, offline; of embedding: none"),
        (["graph", "embedding", "--backend", "offline"], "of graph: none; of embedding: none"),
    ],
)
def test_serve_refuses_what_it_cannot_serve_together(arguments: list[str], message: str) -> None:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["serve", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("command", ["train", "predict"])
def test_the_services_bring_the_commands_of_graphs(command: str) -> None:
    done = CliRunner().invoke(app, ["research", "graphs", command, "--help"])
    assert done.exit_code == 0
    assert "DATA" in done.output


@pytest.mark.parametrize("values", [(), ABSENT])
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["up"], "a clone of the repository"),
        (["serve", "critic", "--port", "0"], "a clone of the repository"),
        (["research", "graphs", "predict", "data.json"], "install them"),
    ],
)
def test_without_the_services_their_commands_say_so(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], command: list[str], message: str
) -> None:
    monkeypatch.setattr(metadata, "entry_points", entries(*values))
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("values", [(), ("absent_research.command:app",)])
@pytest.mark.parametrize("command", sorted(PROJECT["entry-points"][lazy_group.RESEARCH]))
def test_without_research_its_commands_name_the_package(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], command: str
) -> None:
    monkeypatch.setattr(metadata, "entry_points", entries(*values, name=command))
    done = CliRunner().invoke(app, ["research", *command.split("."), "write", "--seed", "7"])
    assert done.exit_code == 2
    assert "dramaturg-research" in done.stderr


def test_a_fault_of_the_services_is_not_taken_for_their_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", entries("gateway.no_such_module:app"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        lazy_group.external_module(lazy_group.PLATFORM)
