from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import Terminal, echo, printable
from dramaturg.tables.model import Cell, Table, columns

CLEAR = "\x1b[2J\x1b[H"
"""Empties a terminal."""
TITLE = "\x1b]0;mine\x07"
"""Renames its window."""


def terminal() -> tuple[Terminal, io.StringIO]:
    written = io.StringIO()
    return Terminal(file=written, force_terminal=True, color_system=None, width=120), written


@given(st.text(alphabet=st.characters(categories=["Cc", "L"])))
def test_no_control_character_is_left_and_nothing_else_is_touched(text: str) -> None:
    shown = printable(text)
    assert not [one for one in shown if one not in "\n\t" and (one < " " or "\x7f" <= one <= "\x9f")]
    assert printable(shown) == shown
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize("mark", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_marks_of_direction_are_shown(mark: str) -> None:
    assert printable(f"a{mark}b") == f"a\\u{ord(mark):04x}b"


def test_a_model_cannot_steer_the_terminal_by_its_name_its_reason_or_a_message() -> None:
    console, written = terminal()
    table = Table(f"scores{TITLE}", columns("model", figures=[f"score{CLEAR}"]))
    table.add_row(f"a{CLEAR}b", Cell("-", note=f"undefined: {TITLE}"))
    print_tables(console, table, f"failed: {CLEAR}")
    console.print(f"judge {TITLE} failed")
    assert "\x1b" not in written.getvalue()
    assert "\x07" not in written.getvalue()
    assert r"a\x1b[2J\x1b[Hb" in written.getvalue()
    assert written.getvalue().count(r"\x1b]0;mine\x07") == 3


def test_nor_is_what_it_says_markup() -> None:
    console, written = terminal()
    console.print("a [/] [bold]reason[/bold] [nothing")
    assert written.getvalue() == "a [/] [bold]reason[/bold] [nothing\n"


def test_nor_by_a_line_that_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"left out: {CLEAR}", err=True)
    assert capsys.readouterr().err == "left out: \\x1b[2J\\x1b[H\n"
