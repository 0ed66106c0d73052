"""Sums of usage (``common.v1.Usage``)."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.api.common.v1.provenance_pb2 import Usage


def add_usage(first: Usage, second: Usage) -> Usage:
    """The sum, member by member; the cost is absent where neither knows one."""
    total = Usage()
    for usage in (first, second):
        for field, amount in usage.ListFields():
            setattr(total, field.name, getattr(total, field.name) + amount)
    return total


def total_usage(usages: Iterable[Usage]) -> Usage:
    """The sum of all; of none it is empty, with no cost."""
    total = Usage()
    for usage in usages:
        total = add_usage(total, usage)
    return total
