"""Sums of usage (``common.v1.Usage``)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dramaturg.api.common.v1.provenance_pb2 import Usage

MAX_AMOUNT = 10**12
"""The largest count and cost. A provider or judge that reports more has made an error."""


def add_usage(first: Usage, second: Usage) -> Usage:
    """Returns the sum, member by member, at most ``MAX_AMOUNT``. The cost is absent where both are absent.

    A cost that is negative or not a number counts as 0.
    """
    total = Usage()
    for usage in (first, second):
        for field, amount in usage.ListFields():
            added = 0 if math.isnan(amount) else max(amount, 0)
            setattr(total, field.name, min(getattr(total, field.name) + added, MAX_AMOUNT))
    return total


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Returns the sum of all. The sum of none is empty, without cost."""
    total = Usage()
    for usage in usages:
        total = add_usage(total, usage)
    return total
