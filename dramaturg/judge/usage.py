"""Sums of usage (``common.v1.Usage``)."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.api.common.v1.provenance_pb2 import Usage


def add_usage(first: Usage, second: Usage) -> Usage:
    """Returns the sum, member by member. The cost is absent where both are absent."""
    total = Usage()
    for usage in (first, second):
        for field, amount in usage.ListFields():
            setattr(total, field.name, getattr(total, field.name) + amount)
    return total


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Returns the sum of all. The sum of none is empty, without cost."""
    total = Usage()
    for usage in usages:
        total = add_usage(total, usage)
    return total
