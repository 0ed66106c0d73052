"""What a request supplies, as lines that a prompt shows."""

from __future__ import annotations

from collections.abc import Mapping

from dramaturg.judge.fence import visible

_INDENT = "\n    "


def indented(text: str) -> str:
    """A text whose further lines are indented, so that none of them can pass for a line of the prompt."""
    return _INDENT.join(visible(text.strip())[0].split("\n"))


def labelled(parts: Mapping[str, str]) -> str:
    """One line for each part that is not blank, after its label."""
    return "\n".join(f"{label}: {indented(text)}" for label, text in parts.items() if text.strip())
