r"""What is written to a terminal cannot steer it.

Models, judges and other services word some of what is shown. Control characters (Unicode's Cc: C0, DEL and
C1) other than line feeds and tabs are shown as ``\x1b`` and the like, so that none of them moves the cursor,
changes the title or overwrites text. Bidirectional control marks are shown as ``\u202e`` and the like, so
that none of them changes the order of what is read. JSON needs none of this: it escapes what matters.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer
from rich.console import Console

BAR_WIDTH = 12
"""Characters of a bar that shows progress."""

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """A text that steers no terminal."""
    return _STEERING.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def echo(text: str, *, err: bool = False) -> None:
    """Writes a line to standard output, or to standard error."""
    typer.echo(printable(text), err=err)


def tell_next(*arguments: object) -> None:
    """Writes the command that a user is likely to want next to standard error."""
    echo(f"next: {shlex.join(['dramaturg', *map(str, arguments)])}", err=True)


class Terminal(Console):
    """A console whose texts are shown as they are: they steer no terminal, and nothing in them is markup.

    What rich itself renders, such as a bar, still may.

    Args:
        options: Those of rich's console.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "highlight": False, **options})

    def print(self, *shown: Any, **options: Any) -> None:
        """Prints texts and what rich can render."""
        super().print(*(printable(one) if isinstance(one, str) else one for one in shown), **options)
