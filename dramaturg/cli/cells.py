"""Formats of table cells: figures, intervals, shares, counts."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.cli.tables import Cell, Noted

ABSENT = "-"
"""A figure that does not exist."""
DIGITS = 3
"""Digits after the decimal point of figures from 0 to 1. Ratings and accuracies of decisions have 2."""
SMALLEST_P = 0.0001
"""A smaller p-value is shown as less than it."""


def number(value: float | None, digits: int = DIGITS) -> str:
    """A figure."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def interval(lower: float | None, upper: float | None, digits: int = DIGITS) -> str:
    """An interval, such as "0.500 to 0.750"."""
    return ABSENT if lower is None or upper is None else f"{lower:.{digits}f} to {upper:.{digits}f}"


def percent_interval(lower: float | None, upper: float | None, digits: int = 1) -> str:
    """An interval of shares, such as "50.0% to 75.0%"."""
    return ABSENT if lower is None or upper is None else f"{lower:.{digits}%} to {upper:.{digits}%}"


def estimated(value: float | None, bounds: Sequence[float] | None, why: str, digits: int = DIGITS) -> Cell:
    """A figure with its interval in one cell, or a note why it is undefined.

    Args:
        value: The figure. None: it is undefined.
        bounds: The ends of its interval. None: it has none.
        why: Why it is undefined. Empty: that is not known.
        digits: Digits after the decimal point.
    """
    if value is None:
        return Noted(ABSENT, f"undefined: {why}") if why else ABSENT
    if bounds is None:
        return number(value, digits)
    return f"{number(value, digits)} [{number(bounds[0], digits)}, {number(bounds[1], digits)}]"


def percent(share: float | None, digits: int = 1, *, signed: bool = False) -> str:
    """A share, such as "12.5%"; a signed one is a difference of shares, such as "+12.5%"."""
    return ABSENT if share is None else f"{share:{'+' if signed else ''}.{digits}%}"


def p_value(p: float | None) -> str:
    """A p-value; none is shown as 0."""
    if p is None:
        return ABSENT
    return f"{p:.4f}" if p >= SMALLEST_P else f"<{SMALLEST_P}"


def counted(count: int, noun: str) -> str:
    """A number of things, such as "1 text" or "2,000 texts"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def named(name: str, absent: str = "(none)") -> str:
    """A name, or a placeholder for an empty one."""
    return name or absent


def model_name(model: str) -> str:
    """A model; "(default)" where a service chose it."""
    return named(model, "(default)")
