"""Cells of the tables of papers: figures with the number that the paper prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.tables.model import ABSENT, Cell, estimate_cell, figure

NOT_SAMPLED = "Counts of the data itself, which is no sample: they have no interval."
"""The note on counts without an interval."""


def words(text: str, printed: str = "") -> Cell:
    """A cell of words."""
    return Cell(text, printed=printed)


def count(number: int, printed: str = "") -> Cell:
    """A cell with a number of items."""
    return Cell(str(number), number, printed=printed)


def number(value: float | None, digits: int, printed: str = "") -> Cell:
    """A cell with a figure. None: the figure is not defined."""
    return Cell(ABSENT if value is None else f"{value:.{digits}f}", value, printed=printed)


def probability(value: float | None, digits: int) -> Cell:
    """A cell with a probability, which is below the last digit rather than 0. None: it is not defined."""
    cell, least = number(value, digits), 10**-digits
    return cell if value is None or value >= least / 2 else Cell(f"< {least:.{digits}f}", value)


def estimate(found: Estimate | None, digits: int, printed: str = "") -> Cell:
    """A cell with an estimate, its interval and the number of items. None: there is none."""
    if found is None:
        return number(None, digits, printed)
    cell = estimate_cell(found, show=lambda value: figure(value, digits))
    details = [cell.ends] if cell.ends else []
    details += [f"n {found.count}"] if found.count and cell.value is not None else []
    text = f"{cell.text} ({', '.join(details)})" if details else cell.text
    return replace(cell, text=text, judged=found.count or None, note="", printed=printed)


def percents(found: Estimate | None, digits: int, printed: str = "") -> Cell:
    """A cell with the estimate of a share from 0 to 1, in percent."""
    if found is None:
        return number(None, digits, printed)
    scaled = Estimate()
    scaled.CopyFrom(found)
    for name in ("value", "lower", "upper"):
        if found.HasField(name):
            setattr(scaled, name, 100 * getattr(found, name))
    return estimate(scaled, digits, printed)


def average(cells: Iterable[Cell], digits: int, printed: str = "") -> Cell:
    """The mean of the figures above, as in a row "Average". Not defined if one of them is not."""
    values = [cell.value for cell in cells]
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known and len(known) == len(values) else None
    return number(mean, digits, printed)
