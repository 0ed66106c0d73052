"""Sums of usage (``common.v1.Usage``)."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Usage

MAX_AMOUNT = 10**12
"""The largest count and cost. A provider or judge that reports more has made an error."""

_COUNTS = tuple(field.name for field in Usage.DESCRIPTOR.fields if not field.has_presence)
_COSTS = tuple(field.name for field in Usage.DESCRIPTOR.fields if field.has_presence)
_read_counts = attrgetter(*_COUNTS)


def add_usage(first: Usage, second: Usage) -> Usage:
    """Returns the sum, member by member, at most ``MAX_AMOUNT``. The cost is absent where both are absent.

    A cost that is negative or not a number counts as 0.
    """
    return total_usage((first, second))


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Returns the sum of all, as ``add_usage`` does. The sum of none is empty, without cost."""
    added: tuple[Any, ...] = tuple(usages)
    total = Usage()
    # All counts of a message are read at once: ``ListFields`` takes twice the time.
    for name, counts in zip(_COUNTS, zip(*map(_read_counts, added), strict=True), strict=False):
        if any(counts):
            setattr(total, name, min(sum(counts), MAX_AMOUNT))
    for name in _COSTS:
        costs = [getattr(usage, name) for usage in added if usage.HasField(name)]
        if costs:
            setattr(total, name, min(sum(cost for cost in costs if cost > 0), MAX_AMOUNT))
    return total
