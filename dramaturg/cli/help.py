"""Help whose paragraphs fit the terminal, however their lines are broken in the source."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class Commands(TyperGroup):
    """A group whose commands, and theirs, have their help reflowed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _reflow(self)


def reflowed(text: str) -> str:
    """The same paragraphs, each in one line; what is indented, such as an example, stays as it is."""
    return "\n\n".join(
        paragraph if paragraph.startswith(" ") else " ".join(paragraph.split())
        for paragraph in text.split("\n\n")
    )


def _reflow(command: Any) -> None:
    if command.help:
        command.help = reflowed(command.help)
    if isinstance(command, TyperGroup):
        for member in command.commands.values():
            _reflow(member)
