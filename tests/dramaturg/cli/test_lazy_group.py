from __future__ import annotations

import sys
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from dramaturg.cli.lazy_group import LazyCommand, LazyGroup, reflowed


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    module = ModuleType("lazy_example")
    app = typer.Typer()
    module.app = app  # type: ignore[attr-defined]

    @app.command("greet")
    def greet(name: str) -> None:
        """Greets."""
        typer.echo(f"hello {name}")

    @app.command("part")
    def part() -> None:
        """Parts."""

    monkeypatch.setitem(sys.modules, "lazy_example", module)

    class Members(LazyGroup):
        members = (
            LazyCommand("greet", "lazy_example", "Greets."),
            LazyCommand("both", "lazy_example", "Both.", group=True),
            LazyCommand("missing", "lazy_example", "Is not there."),
            LazyCommand("absent", "no_such_module", "Cannot be imported."),
        )

    app = typer.Typer(cls=Members, no_args_is_help=True)
    app.callback()(lambda: None)
    return app


def test_help_lists_the_members_without_importing_them(group: typer.Typer) -> None:
    done = CliRunner().invoke(group, ["--help"])
    assert done.exit_code == 0
    for text in ("Greets.", "Both.", "Cannot be imported."):
        assert text in done.stdout


def test_a_member_is_imported_when_it_is_run(group: typer.Typer) -> None:
    assert CliRunner().invoke(group, ["greet", "you"]).stdout == "hello you\n"
    assert CliRunner().invoke(group, ["both", "greet", "you"]).stdout == "hello you\n"
    assert isinstance(CliRunner().invoke(group, ["absent"]).exception, ModuleNotFoundError)


def test_a_member_that_its_module_does_not_have_is_an_error(group: typer.Typer) -> None:
    error = CliRunner().invoke(group, ["missing"]).exception
    assert isinstance(error, LookupError)
    assert "lazy_example:app has no command 'missing'" in str(error)


def test_indented_text_stays_as_it_is() -> None:
    assert reflowed("One\ntwo.\n\n    a  command\n    --more\n\nThree.") == (
        "One two.\n\n    a  command\n    --more\n\nThree."
    )
