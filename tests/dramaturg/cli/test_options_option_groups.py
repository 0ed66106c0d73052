"""Options that go together, as one parameter of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from dramaturg.cli.options import takes_groups


@dataclass(frozen=True)
class Shared:
    file: Annotated[str, typer.Argument(metavar="FILE")]
    limit: Annotated[int, typer.Option(min=1, help="The most.")] = 3
    out: Annotated[str, typer.Option("--out", "-o")] = "here"


@dataclass(frozen=True)
class Longer(Shared):
    limit: Annotated[int, typer.Option(min=1)] = 9


app = typer.Typer()


@app.command()
@takes_groups
def first(shared: Shared, own: Annotated[bool, typer.Option("--own", help="Its own.")] = False) -> None:
    """Does it."""
    typer.echo((shared, own))


@app.command()
@takes_groups
def second(shared: Longer) -> None:
    typer.echo(shared.limit)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_the_options_of_a_group_come_as_one_value() -> None:
    assert run("first", "a.txt") == str((Shared("a.txt"), False))
    assert run("first", "a.txt", "--own", "--limit", "5", "-o", "there") == str(
        (Shared("a.txt", 5, "there"), True)
    )


def test_a_command_may_have_another_default() -> None:
    assert run("second", "a.txt") == "9"


def test_they_are_checked_as_options_are() -> None:
    assert CliRunner().invoke(app, ["first", "a.txt", "--limit", "0"]).exit_code == 2
    assert CliRunner().invoke(app, ["first"]).exit_code == 2


def test_a_commands_own_options_stand_first_in_its_help() -> None:
    shown = run("first", "--help")
    assert "Does it." in shown
    assert shown.index("--own") < shown.index("--limit") < shown.index("--out")
