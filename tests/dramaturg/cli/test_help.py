"""What every command's help has in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from dramaturg.cli.help import reflowed
from dramaturg.cli.main import app

SHARED = {"--format", "--limit", "--target", "--out", "--json", "--concurrency", "--timeout"}


def commands(command: Any, name: str = "dramaturg") -> Iterator[tuple[str, Any]]:
    yield name, command
    for member, found in getattr(command, "commands", {}).items():
        yield from commands(found, f"{name} {member}")


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", sorted(ALL))
def test_paragraphs_fit_any_terminal(name: str) -> None:
    for paragraph in (ALL[name].help or "").split("\n\n"):
        assert paragraph.startswith(" ") or "\n" not in paragraph.strip()


def test_examples_stay_as_they_are() -> None:
    assert reflowed("One\ntwo.\n\n    a  command\n    --more\n\nThree.") == (
        "One two.\n\n    a  command\n    --more\n\nThree."
    )


@pytest.mark.parametrize("evaluation", ["scripts", "pairs", "graphs", "decisions", "dialogues"])
def test_every_evaluation_has_the_same_options(evaluation: str) -> None:
    command = ALL[f"dramaturg evaluate {evaluation}"]
    options = {option: one for one in command.params for option in one.opts}
    assert set(options) >= SHARED
    model = {option: one for one in ALL["dramaturg evaluate scripts"].params for option in one.opts}
    for option in SHARED:
        assert (options[option].help, options[option].default) == (model[option].help, model[option].default)
