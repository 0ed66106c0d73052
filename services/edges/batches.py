"""Batches of inputs of similar length; a batch is padded to its longest member."""

from __future__ import annotations

from collections.abc import Sequence


def inference_batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Batches of at most ``size`` indices into ``lengths``, each index once, longest first."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    return cut(order, size)


def cut(order: Sequence[int], size: int) -> list[list[int]]:
    """Batches of ``size`` indices in order; the last may have fewer."""
    return [list(order[start : start + size]) for start in range(0, len(order), size)]
