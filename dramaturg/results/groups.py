"""Groups of figures by tags (``evaluation.v1.SummaryOptions.groupings``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions


class Grouped(Protocol):
    """The figures of a group."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The group; empty for all samples."""


SomeGrouped = TypeVar("SomeGrouped", bound=Grouped)


def by_grouping(
    options: SummaryOptions, rows: Iterable[SomeGrouped]
) -> Iterator[tuple[Sequence[str], Sequence[SomeGrouped]]]:
    """Yields each grouping's tags in the requested order with its rows, if there are any."""
    listed = list(rows)
    for names in dict.fromkeys(tuple(dict.fromkeys(grouping.tags)) for grouping in options.groupings):
        found = [row for row in listed if set(row.tags) == set(names)]
        if found:
            yield names, found
