"""Formats of figures from 0 to 1, of counts, and of names."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.tables.model import ABSENT, Cell

DIGITS = 3
"""Digits after the decimal point of figures from 0 to 1. Ratings and accuracies of decisions have 2."""


def number(value: float | None, digits: int = DIGITS) -> str:
    """A figure."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def interval(lower: float | None, upper: float | None, digits: int = DIGITS) -> str:
    """An interval, such as "0.500 to 0.750"."""
    return ABSENT if lower is None or upper is None else f"{lower:.{digits}f} to {upper:.{digits}f}"


def estimated(value: float | None, bounds: Sequence[float] | None, why: str, digits: int = DIGITS) -> Cell:
    """A figure with its interval in one cell, or a note why it is undefined.

    Args:
        value: The figure. None: it is undefined.
        bounds: The ends of its interval. None: it has none.
        why: Why it is undefined. Empty: that is not known.
        digits: Digits after the decimal point.
    """
    if value is None:
        return Cell(ABSENT, note=f"undefined: {why}" if why else "")
    if bounds is None:
        return Cell(number(value, digits), value)
    lower, upper = bounds
    text = f"{number(value, digits)} [{number(lower, digits)}, {number(upper, digits)}]"
    return Cell(text, value, (lower, upper), f"{number(lower, digits)} to {number(upper, digits)}")


def counted(count: int, noun: str) -> str:
    """A number of things, such as "1 text" or "2,000 texts"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def named(name: str, absent: str = "(none)") -> str:
    """A name, or a placeholder for an empty one."""
    return name or absent


def model_name(model: str) -> str:
    """A model; "(default)" where a service chose it."""
    return named(model, "(default)")
