"""Puts texts into batches by their tokens."""

from __future__ import annotations

from collections.abc import Sequence


def plan_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Groups texts of about equal length.

    A batch is padded to its longest text, so mixing lengths wastes work; and memory grows with the padded
    tokens, so these are capped and not the texts.

    Args:
        lengths: The tokens of each text, at least 1.
        budget: The most tokens of a batch, padding included. A longer text is a batch of its own.

    Returns:
        Indices into ``lengths``, every one exactly once, longest texts first.
    """
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if room == 0:
            batches.append([])
            # The first text of a batch is its longest: that fixes how many fit.
            room = max(1, budget // lengths[index])
        batches[-1].append(index)
        room -= 1
    return batches
