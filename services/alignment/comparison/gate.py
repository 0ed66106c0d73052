"""The gate: whether a system may take the baseline's place."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from services.alignment.estimates import Estimate


class Gate(Enum):
    """What a comparison says."""

    GO = "go"
    NO_GO = "no-go"
    INCONCLUSIVE = "inconclusive"


def gate(difference: Estimate, adjusted_p: float | None, margin: float, level: float) -> Gate:
    """Decides one comparison.

    GO is a claim of non-inferiority: the whole interval lies above minus the margin. It is made for all
    comparisons together only where each allows it, which needs no correction (Berger 1982, intersection-union
    tests). NO-GO is made where any one does, so the p-value is to be adjusted.
    """
    if difference.value is None or difference.lower is None:
        return Gate.INCONCLUSIVE
    if difference.lower >= -margin:
        return Gate.GO
    if adjusted_p is not None and adjusted_p <= 1 - level and difference.value < 0:
        return Gate.NO_GO
    return Gate.INCONCLUSIVE


def together(gates: Iterable[Gate]) -> Gate:
    """NO-GO where one is, GO where all are and there is one, else inconclusive."""
    found = set(gates)
    if Gate.NO_GO in found:
        return Gate.NO_GO
    return Gate.GO if found == {Gate.GO} else Gate.INCONCLUSIVE
