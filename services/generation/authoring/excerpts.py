"""The parts of a request as lines of a prompt."""

from __future__ import annotations

from collections.abc import Mapping

from dramaturg.judge.fence import visible

_INDENT = "\n    "


def indented(text: str) -> str:
    """Indents the lines after the first, so that none of them looks like a line of the prompt."""
    return _INDENT.join(visible(text.strip())[0].split("\n"))


def labelled(parts: Mapping[str, str]) -> str:
    """Returns one labelled line for each part that is not blank."""
    return "\n".join(f"{label}: {indented(text)}" for label, text in parts.items() if text.strip())
