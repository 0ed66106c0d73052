"""Finds near-duplicates of earlier texts."""

from __future__ import annotations

from collections.abc import Sequence


def repeats(
    texts: Sequence[str], vectors: Sequence[Sequence[float] | None] | None, threshold: float
) -> Sequence[int | None]:
    """For each text the index of the first earlier new text that it repeats.

    Args:
        texts: The texts.
        vectors: A vector of length 1 for each; None for a text of which only words are compared. None: only
            words are compared.
        threshold: The cosine at which vectors repeat each other.
    """
    words = [" ".join(text.casefold().split()) for text in texts]
    found: list[int | None] = []
    new: list[int] = []
    for index, text in enumerate(words):
        same = (
            one
            for one in new
            if words[one] == text
            or (vectors is not None and _are_near(vectors[one], vectors[index], threshold))
        )
        earlier = next(same, None)
        if earlier is None:
            new.append(index)
        found.append(earlier)
    return found


def _are_near(one: Sequence[float] | None, other: Sequence[float] | None, threshold: float) -> bool:
    if one is None or other is None:
        return False
    return sum(first * second for first, second in zip(one, other, strict=True)) >= threshold
