"""Groups of figures by tags (``evaluation.v1.SummaryOptions.groupings``), and the tags of variants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions


class Grouped(Protocol):
    """The figures of a group."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The group; empty for all samples."""


SomeGrouped = TypeVar("SomeGrouped", bound=Grouped)


_LEVELS = (
    ("very easy", "easy", "medium", "moderate", "hard", "very hard"),
    ("none", "very low", "low", "medium", "moderate", "high", "very high"),
    ("tiny", "small", "medium", "large", "huge"),
    ("short", "medium", "long"),
)
"""Scales whose levels are words, each from the lowest level."""
_UNKNOWN = ("", "n/a", "na", "unknown")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def ordered_values(values: Iterable[str]) -> Sequence[str]:
    """The values of a tag in the order of their scale.

    Levels such as easy, medium and hard are in the order of the level, numbers and texts that begin with one
    in the order of the number, others in that of the alphabet. A value that is not known is last.
    """
    known = list(dict.fromkeys(values))
    used = {one.casefold() for one in known} - set(_UNKNOWN)
    scale = next((one for one in _LEVELS if len(used) > 1 and used <= set(one)), ())

    def place(value: str) -> tuple[bool, float, str]:
        folded = value.casefold()
        if folded in scale:
            return False, scale.index(folded), value
        number = _NUMBER.match(value)
        return folded in _UNKNOWN, float(number[0]) if number else float("inf"), value

    return sorted(known, key=place)


def by_grouping(
    options: SummaryOptions, rows: Iterable[SomeGrouped]
) -> Iterator[tuple[Sequence[str], Sequence[SomeGrouped]]]:
    """Yields each grouping's tags in the requested order with its rows, if there are any.

    The rows are in the order of the values of their tags (``ordered_values``).
    """
    listed = list(rows)
    for names in dict.fromkeys(tuple(dict.fromkeys(grouping.tags)) for grouping in options.groupings):
        found = [row for row in listed if set(row.tags) == set(names)]
        places = {
            name: {
                value: place for place, value in enumerate(ordered_values(row.tags[name] for row in found))
            }
            for name in names
        }
        if found:
            yield names, sorted(found, key=lambda row: [places[name][row.tags[name]] for name in names])


BASE = "base"
"""The variant that the others are compared with."""
LINE_TAG = "line"
"""The tag that records the number of a row's line, by which the results of variants are matched."""
VARIANT_TAG = "variant"
"""The tag that records the variant of a row of a run."""
