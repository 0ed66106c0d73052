"""How the commands of the services join ``dramaturg graphs``."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from dramaturg.cli import graphs_train


def group(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> typer.Typer:
    monkeypatch.setattr(graphs_train, "entry_points", lambda group: entries)
    graphs = typer.Typer()
    graphs.callback()(lambda: None)
    graphs_train.add_training(graphs)
    return graphs


def entry(value: str) -> EntryPoint:
    return EntryPoint("edges", value, graphs_train.COMMANDS)


def test_the_services_bring_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = group(monkeypatch, entry("services.edges.commands:app"))
    for command in ("train", "predict"):
        result = CliRunner().invoke(graphs, [command, "--help"])
        assert result.exit_code == 0
        assert "DATA" in result.output


@pytest.mark.parametrize("entries", [(), (entry("services_that_are_absent.commands:app"),)])
def test_without_services_the_commands_say_so(
    monkeypatch: pytest.MonkeyPatch, entries: tuple[EntryPoint, ...]
) -> None:
    graphs = group(monkeypatch, *entries)
    for command in ("train", "predict"):
        result = CliRunner().invoke(graphs, [command, "data.json", "-o", "model", "--encoder", "e"])
        assert result.exit_code == 2
        assert "install" in result.output


def test_a_fault_of_the_services_is_not_taken_for_their_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_room"):
        group(monkeypatch, entry("services.no_such_room:app"))
