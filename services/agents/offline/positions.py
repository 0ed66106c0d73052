"""The usual position of a step in the other scripts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.agents.offline.embeddings import Floats

BANDWIDTH = 0.1
"""The bandwidth: the difference in cosine that multiplies the weight of a step by e."""


def expected_positions(steps: Floats, scripts: Sequence[Floats]) -> NDArray[np.float64]:
    """Returns the expected position of each step, from 0 (first) to 1 (last).

    The mean of the positions of the pool's steps, weighted by their similarity (Nadaraya-Watson regression
    with an exponential kernel on the cosine).

    Args:
        steps: Unit vectors, (steps, dimension).
        scripts: Unit vectors of each script's steps; scripts of one step have no order and are skipped.

    Returns:
        (steps,); all 0.5 where no script has two steps.
    """
    telling = [script for script in scripts if len(script) > 1]
    if not telling:
        return np.full(len(steps), 0.5)
    places = np.concatenate([np.linspace(0, 1, len(script)) for script in telling])
    cosines = (steps @ np.concatenate(telling).T).astype(np.float64)
    weights = np.exp((cosines - cosines.max(axis=1, keepdims=True)) / BANDWIDTH)
    expected: NDArray[np.float64] = weights @ places / weights.sum(axis=1)
    return expected


def consistency(expected: NDArray[np.float64]) -> float:
    """Returns the agreement of the written and the expected order: Kendall's tau-a, from -1 to 1.

    The share of concordant pairs minus the share of discordant pairs; 0 for fewer than two steps.
    """
    if len(expected) < 2:
        return 0.0
    signs = np.sign(expected[None, :] - expected[:, None])
    return float(signs[np.triu_indices(len(expected), k=1)].mean())


def most_inverted(expected: NDArray[np.float64]) -> tuple[int, int]:
    """Returns the two steps, the earlier first, whose expected order contradicts the written one most."""
    drops = expected[:, None] - expected[None, :]
    drops[np.tril_indices(len(expected))] = -np.inf
    first, second = np.unravel_index(int(np.argmax(drops)), drops.shape)
    return int(first), int(second)
