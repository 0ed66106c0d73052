"""Holds a script against its goal and against the scripts of others.

Each screen finds gross faults alone. What it does not find is no sign that the script is good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.agents.offline import calibration
from services.agents.offline.consensus import best_matches, support
from services.agents.offline.embeddings import Floats
from services.agents.offline.positions import consistency, expected_positions, most_inverted


@dataclass(frozen=True)
class TopicScreen:
    """Whether a script is about its goal."""

    similarity: float
    """The cosine of the goal and the whole script."""
    threshold: float
    """Below it, a script is off topic."""

    @property
    def off_topic(self) -> bool:
        """Whether the script is about something else."""
        return self.similarity < self.threshold


@dataclass(frozen=True)
class SupportScreen:
    """Whether a step stands alone."""

    weakest: int
    """The step that the pool backs least."""
    support: float
    """How much it backs it: a mean cosine."""
    threshold: float
    """Below it, the step stands alone."""

    @property
    def unsupported(self) -> bool:
        """Whether the weakest step stands alone."""
        return self.support < self.threshold


@dataclass(frozen=True)
class OrderScreen:
    """Whether the order is unlike that of others."""

    consistency: float
    """Kendall's tau with the usual order."""
    threshold: float
    """Below it, the order is wrong."""
    earlier: int
    """Of the two steps whose order is most unusual, the one that stands first."""
    later: int
    """And the one that stands after it."""

    @property
    def disordered(self) -> bool:
        """Whether the order is grossly unusual."""
        return self.consistency < self.threshold


def screen_topic(goal: Floats, script: Floats, pool: Floats) -> TopicScreen:
    """Screens the topic.

    Args:
        goal: The goal's unit vector, (dimension,).
        script: The whole script's, (dimension,).
        pool: Those of the pool's whole scripts, (scripts, dimension).
    """
    threshold = calibration.OFF_TOPIC_SIMILARITY
    if len(pool) >= calibration.OFF_TOPIC_MIN_POOL:
        typical = float(np.median(pool @ goal))
        threshold = min(threshold, typical - calibration.OFF_TOPIC_DISTANCE_FROM_POOL)
    return TopicScreen(float(script @ goal), threshold)


def screen_support(steps: Floats, pool: Sequence[Floats]) -> SupportScreen:
    """Screens for a step that the pool does not back, by the pool's own weakest steps.

    Args:
        steps: The unit vectors of the script's steps, (steps, dimension).
        pool: Those of each other script; at least REDUNDANT_MIN_POOL scripts.
    """
    backing = support(steps, pool)
    usual = [float(support(script, others).min()) for script, others in _each_against_the_rest(pool)]
    threshold = float(np.percentile(usual, 100 - calibration.REDUNDANT_PERCENTILE))
    weakest = int(np.argmin(backing))
    return SupportScreen(weakest, float(backing[weakest]), threshold - calibration.REDUNDANT_MARGIN)


def screen_order(steps: Floats, pool: Sequence[Floats]) -> OrderScreen:
    """Screens for an order that is unlike the pool's.

    Args:
        steps: The unit vectors of the script's steps, at least ORDER_MIN_STEPS, (steps, dimension).
        pool: Those of each other script; at least ORDER_MIN_POOL scripts of as many steps.
    """
    expected = expected_positions(steps, pool)
    usual = [
        consistency(expected_positions(script, others)) for script, others in _each_against_the_rest(pool)
    ]
    percentile = float(np.percentile(usual, 100 - calibration.ORDER_PERCENTILE))
    threshold = min(percentile, calibration.ORDER_MAX_CONSISTENCY)
    return OrderScreen(consistency(expected), threshold, *most_inverted(expected))


def uncovered_consensus(steps: Floats, pool: Sequence[Floats], limit: int = 5) -> list[int]:
    """Steps that most of the pool has and the script has not.

    Args:
        steps: The unit vectors of the script's steps, (steps, dimension).
        pool: Those of each other script.
        limit: The most steps to name.

    Returns:
        Indices into the pool's steps, one script after the other: the most common first, none near to
        another.
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
