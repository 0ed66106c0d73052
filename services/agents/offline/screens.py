"""Compares a script with its goal and with the other scripts of a pool, by similarity and by position.

Screens detect gross faults only. The absence of a detection is not evidence of quality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.agents.offline import calibration
from services.agents.offline.consensus import best_matches, support
from services.agents.offline.material import Floats

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


@dataclass(frozen=True)
class TopicScreen:
    """The result of the topic screen."""

    similarity: float
    """The cosine of the goal and the whole script."""
    threshold: float
    """The threshold below which a script is off topic."""

    @property
    def off_topic(self) -> bool:
        """Whether the script is off topic."""
        return self.similarity < self.threshold


@dataclass(frozen=True)
class SupportScreen:
    """The result of the support screen."""

    weakest: int
    """The step with the least support."""
    support: float
    """The support: a mean cosine."""
    threshold: float
    """The threshold below which a step is unsupported."""

    @property
    def unsupported(self) -> bool:
        """Whether the step with the least support is unsupported."""
        return self.support < self.threshold


@dataclass(frozen=True)
class OrderScreen:
    """The result of the order screen."""

    consistency: float
    """Kendall's tau with the usual order."""
    threshold: float
    """The threshold below which the order is wrong."""
    earlier: int
    """The first of the two steps with the most unusual order."""
    later: int
    """The second of these two steps."""

    @property
    def disordered(self) -> bool:
        """Whether the order is grossly unusual."""
        return self.consistency < self.threshold


def screen_topic(goal: Floats, script: Floats, pool: Floats) -> TopicScreen:
    """Screens the topic.

    Args:
        goal: The goal's unit vector, (dimension,).
        script: The unit vector of the whole script, (dimension,).
        pool: The unit vectors of the pool's whole scripts, (scripts, dimension).
    """
    threshold = calibration.OFF_TOPIC_SIMILARITY
    if len(pool) >= calibration.OFF_TOPIC_MIN_POOL:
        typical = float(np.median(pool @ goal))
        threshold = min(threshold, typical - calibration.OFF_TOPIC_DISTANCE_FROM_POOL)
    return TopicScreen(float(script @ goal), threshold)


def screen_support(steps: Floats, pool: Sequence[Floats]) -> SupportScreen:
    """Screens for an unsupported step, compared with the weakest steps of the pool's scripts.

    Args:
        steps: The unit vectors of the script's steps, (steps, dimension).
        pool: The unit vectors of each other script; at least REDUNDANT_MIN_POOL scripts.
    """
    backing = support(steps, pool)
    usual = [float(support(script, others).min()) for script, others in _each_against_the_rest(pool)]
    threshold = float(np.percentile(usual, 100 - calibration.REDUNDANT_PERCENTILE))
    weakest = int(np.argmin(backing))
    return SupportScreen(weakest, float(backing[weakest]), threshold - calibration.REDUNDANT_MARGIN)


def screen_order(steps: Floats, pool: Sequence[Floats]) -> OrderScreen:
    """Screens for an order unlike the pool's.

    Args:
        steps: The unit vectors of the script's steps, at least ORDER_MIN_STEPS, (steps, dimension).
        pool: The unit vectors of each other script; at least ORDER_MIN_POOL scripts, each of at least
            ORDER_MIN_STEPS steps.
    """
    expected = expected_positions(steps, pool)
    usual = [
        consistency(expected_positions(script, others)) for script, others in _each_against_the_rest(pool)
    ]
    percentile = float(np.percentile(usual, 100 - calibration.ORDER_PERCENTILE))
    threshold = min(percentile, calibration.ORDER_MAX_CONSISTENCY)
    return OrderScreen(consistency(expected), threshold, *most_inverted(expected))


def uncovered_consensus(steps: Floats, pool: Sequence[Floats], limit: int = 5) -> list[int]:
    """Returns the steps that most of the pool has and the script lacks.

    Args:
        steps: The unit vectors of the script's steps, (steps, dimension).
        pool: The unit vectors of each other script.
        limit: The maximum number of steps.

    Returns:
        Indices into the pool's steps, one script after the other: most common first, no two of
        them similar.
    """
    candidates = np.concatenate(pool)
    common = (best_matches(candidates, pool) >= calibration.CONSENSUS_SIMILARITY).mean(axis=1)
    covered = (candidates @ steps.T).max(axis=1) >= calibration.CONSENSUS_SIMILARITY
    named: list[int] = []
    for index in np.lexsort((np.arange(len(candidates)), -common)):
        if len(named) == limit or common[index] < calibration.CONSENSUS_SHARE:
            break
        near_to_named = bool(
            named and (candidates[named] @ candidates[index]).max() >= calibration.CONSENSUS_SIMILARITY
        )
        if not covered[index] and not near_to_named:
            named.append(int(index))
    return named


def _each_against_the_rest(pool: Sequence[Floats]) -> list[tuple[Floats, list[Floats]]]:
    return [(script, [*pool[:index], *pool[index + 1 :]]) for index, script in enumerate(pool)]
