"""Greedy matching of token vectors, as BERTScore does it (Zhang et al. 2020, section 3).

Each token of one text is matched with the token of the other whose vector is nearest by cosine. The mean of
the candidate's best cosines is its precision, that of the reference's the recall. This is not BERTScore and
not named so: words are not weighted by their rarity (idf), figures are not rescaled against a baseline, and
the vectors are the last hidden states of whatever model EmbeddingService has. Figures of different models
cannot be compared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from services.alignment.text.vectors import Matrix

_ROWS_AT_ONCE = 1024


class Matched(NamedTuple):
    """How well the tokens of two texts match; all in [0, 1]."""

    precision: float
    """The mean over the candidate's tokens of the largest cosine with one of the reference's."""
    recall: float
    """The mean over the reference's tokens of the largest cosine with one of the candidate's."""

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 where both are 0."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def match(candidate: Matrix, reference: Matrix) -> Matched:
    """Matches the tokens of two texts; a mean below 0 is 0.

    Args:
        candidate: The vectors of its tokens, one or more, (tokens, dimension), each of length 1.
        reference: Those of the other text.
    """
    nearest = np.full(len(reference), -1, dtype=np.float32)
    total = 0.0
    # All cosines of two long texts would take gigabytes.
    for start in range(0, len(candidate), _ROWS_AT_ONCE):
        cosines = candidate[start : start + _ROWS_AT_ONCE] @ reference.T
        total += float(cosines.max(axis=1).sum(dtype=np.float64))
        np.maximum(nearest, cosines.max(axis=0), out=nearest)
    return Matched(_share(total / len(candidate)), _share(float(nearest.mean(dtype=np.float64))))


def _share(mean: float) -> float:
    return min(1.0, max(0.0, mean))
