"""Puts pairs into batches of about equal length: a batch is padded to its longest member."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_WINDOW = 50
"""How many batches are sorted by length at a time. More would save little and make epochs alike."""


def inference_batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Groups of at most ``size`` indices into ``lengths``, every one once, longest first."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    return _cut(order, size)


def training_batches(lengths: Sequence[int], size: int, seed: int, epoch: int) -> list[list[int]]:
    """The batches of one epoch, in the order in which they are learnt.

    Examples are sorted by length within windows of some fifty batches only, and the batches are then
    shuffled, so that neither the members of a batch nor the order of batches is fixed.

    Args:
        lengths: The tokens of each example. Their order is already random.
        size: The examples of a batch.
        seed: Of the whole training.
        epoch: From 0.
    """
    batches = []
    for start in range(0, len(lengths), _WINDOW * size):
        window = range(start, min(start + _WINDOW * size, len(lengths)))
        batches += _cut(sorted(window, key=lambda index: (lengths[index], index)), size)
    Random(f"{seed}/{epoch}/batches").shuffle(batches)  # noqa: S311
    return batches


def _cut(order: Sequence[int], size: int) -> list[list[int]]:
    return [list(order[start : start + size]) for start in range(0, len(order), size)]
