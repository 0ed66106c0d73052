"""The parts of a request as lines of a fenced text."""

from __future__ import annotations

import re
from collections.abc import Mapping

_INDENT = "\n    "
_LINE_END = re.compile(r"\r\n?|\n")


def indented(text: str) -> str:
    """Indents the lines after the first, so that none of them looks like a line of the prompt."""
    return _LINE_END.sub(_INDENT, text.strip())


def labelled(parts: Mapping[str, str]) -> str:
    """Returns one labelled line for each part that is not blank."""
    return "\n".join(f"{label}: {indented(text)}" for label, text in parts.items() if text.strip())
