"""Batches of training examples of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from services.edges.inference import cut

_WINDOW = 50
"""The number of batches sorted by length at a time. More saves little time and makes epochs similar."""


def training_batches(lengths: Sequence[int], size: int, seed: int, epoch: int) -> list[list[int]]:
    """The batches of one epoch, in training order.

    Examples are sorted by length only within windows of fifty batches, and the batches are then shuffled, so
    that neither the members of a batch nor the order of batches is fixed.

    Args:
        lengths: The number of tokens of each example, in random order.
        size: The number of examples of a batch.
        seed: The seed of the training.
        epoch: The epoch, from 0.
    """
    batches = []
    for start in range(0, len(lengths), _WINDOW * size):
        window = range(start, min(start + _WINDOW * size, len(lengths)))
        batches += cut(sorted(window, key=lambda index: (lengths[index], index)), size)
    Random(f"{seed}/{epoch}/batches").shuffle(batches)  # noqa: S311
    return batches
