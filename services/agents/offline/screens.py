"""Compares a script with its goal, its constraints and other scripts, by similarity, words and position.

Screens detect gross faults only. The absence of a detection is not evidence of quality.

The error rates of the thresholds were measured on the 3,000 scripts of CoScript's test part (Yuan et al.
2023), written by a language model and corrected by people; ``bench/offline_screen.py`` fits and measures them
again. The rates differ on other kinds of scripts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dramaturg.judge.steps import is_blank
from services.agents.offline.material import Embedded, Floats, best_matches, support
from services.agents.offline.wording import ABSENCE_OR_QUANTITY, FUNCTION_WORDS, contrast, normalise, words

_STEM_LENGTH = 5


@dataclass(frozen=True)
class LogisticModel:
    """The probability that a script was written for a constraint, from three features."""

    intercept: float
    nearest_step: float
    """The weight of the cosine of the constraint and its nearest step."""
    whole_script: float
    """The weight of the cosine of the constraint and the whole script."""
    keywords: float
    """The weight of the share of the constraint's content words that the script has."""

    def probability(self, features: Features) -> float:
        logit = (
            self.intercept
            + self.nearest_step * features.nearest_step
            + self.whole_script * features.whole_script
            + self.keywords * features.keywords
        )
        return 1 / (1 + math.exp(-logit))


@dataclass(frozen=True)
class Features:
    """The features of a constraint in a script."""

    nearest_step: float
    whole_script: float
    keywords: float


def undecidable_word(constraint: str) -> str | None:
    """Returns the word or number of a constraint of absence or quantity; None for other constraints.

    Similarity misleads for these: a script that violates "without an oven" mentions an oven, as the
    constraint does. Different numbers and amounts have nearly equal embeddings.
    """
    for word in words(constraint):
        if word[0].isdigit() or word in ABSENCE_OR_QUANTITY or word.endswith(("less", "n't")):
            return word
    return None


def measure(constraint: str, vector: Floats, script: str, script_vector: Floats, steps: Floats) -> Features:
    """Measures the features of a constraint in a script.

    Args:
        constraint: The constraint.
        vector: Its unit vector, (dimension,).
        script: The whole script.
        script_vector: Its unit vector, (dimension,).
        steps: The unit vectors of its steps, (steps, dimension), at least one.
    """
    return Features(
        nearest_step=float(np.max(steps @ vector)),
        whole_script=float(script_vector @ vector),
        keywords=_keywords(constraint, script),
    )


def _keywords(constraint: str, script: str) -> float:
    wanted = {word[:_STEM_LENGTH] for word in words(constraint) if word not in FUNCTION_WORDS}
    if not wanted:
        return 0.0
    present = {word[:_STEM_LENGTH] for word in words(script)}
    return len(wanted & present) / len(wanted)


DUPLICATE_SIMILARITY = 0.95
"""The minimum cosine of duplicate steps, which must also have the same content words. Without that condition
1 % of scripts are flagged for steps with different actions ("draw the head", "draw the body"); with it 1 in
3,000. Repeated wordings occur in 1.3 %."""
POSSIBLE_DUPLICATE_SIMILARITY = 0.85
"""The minimum cosine of possible duplicates. 18 % of scripts have such a pair, and the judge abstains.
Paraphrases in very different words have lower cosines and are not detected."""

OFF_TOPIC_SIMILARITY = 0.30
"""The minimum cosine of script and goal; below it a script is off topic. Flags 0.9 % of scripts under their
own goal, 90 % under another goal of the same category, 99.5 % under a goal of another category."""
OFF_TOPIC_DISTANCE_FROM_POOL = 0.15
"""The additional condition with a pool: the minimum distance below the pool's median cosine with the goal, as
the wording of a goal may be unlike every script. Flags 0.9 % under their own goal, 91 % under another goal of
the same category."""
OFF_TOPIC_MIN_POOL = 5
"""The minimum number of usable candidates for a median."""

REDUNDANT_MIN_POOL = 8
"""The minimum number of usable candidates for a verdict on redundant steps."""
REDUNDANT_PERCENTILE = 95.0
"""The share of the pool's own scripts, each judged by the rest, with a better supported weakest step."""
REDUNDANT_MARGIN = 0.15
"""The minimum difference of support, in cosine. With pools of four to seven (below the required size) it
flags 3 % of unchanged scripts and 36 % of scripts with an added step of another script."""

ORDER_MIN_POOL = 10
"""The minimum number of usable candidates for a verdict on the order."""
ORDER_MIN_STEPS = 4
"""The minimum number of steps: with three steps, one swapped pair is common and nearly the worst order."""
ORDER_PERCENTILE = 90.0
"""The share of the pool's own scripts, each judged by the rest, that are nearer to the usual order."""
ORDER_MAX_CONSISTENCY = -0.25
"""The highest Kendall's tau with the usual order that is wrong: more pairs against it than for it. With pools
of four to seven (below the required size) it flags 5 % of unchanged scripts, 23 % of shuffled and 75 % of
reversed ones. Swapped neighbours are not detected."""

MISSING_MIN_POOL = 5
"""The minimum number of usable candidates for a consensus on the steps of a script."""
CONSENSUS_SIMILARITY = 0.7
"""The minimum cosine at which a script contains a step."""
CONSENSUS_SHARE = 0.5
"""The share of the pool that has a step of the consensus."""

CONSTRAINT = LogisticModel(intercept=-2.807, nearest_step=1.386, whole_script=1.624, keywords=3.477)
"""The model, fitted on the goals of odd number: a script's own constraint against those of other scripts for
the same abstract goal, equally frequent. Constraints of absence or quantity are excluded."""
CONSTRAINT_CONFIDENCE = 0.9
"""The minimum probability of an answer. On the goals of even number 32 % are answered, 91.5 % of them
correctly. Constraints of absence or quantity would be answered with 73 % accuracy, so the judge abstains from
them."""


_MOST_PAIRS = 10_000
"""The maximum number of examined pairs, nearest first. With more, the judge at least abstains."""


@dataclass(frozen=True)
class Repetition:
    """Steps that are duplicates or possible duplicates."""

    steps: tuple[int, ...]
    """Their indices, ascending, at least two."""
    similarity: float
    """The cosine of the steps; 1 for the same wording."""
    doubt: str = ""
    """The reason of doubt, in words. Empty: they are duplicates."""


def repeated_wordings(steps: Sequence[str]) -> list[Repetition]:
    """Returns steps of equal wording, ignoring case, spaces and the final stop. Blank steps do not count."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        if not is_blank(step):
            groups[normalise(step)].append(index)
    return [Repetition(tuple(group), 1.0) for group in groups.values() if len(group) > 1]


def repeated_meanings(steps: Sequence[str], embedded: Embedded) -> list[Repetition]:
    """Returns pairs of differently worded steps that are duplicates or possible duplicates, nearest first.

    A pair is in doubt if its cosine is below the threshold, if content words, numbers or directions differ,
    or if the encoder truncated a step.
    """
    firsts: dict[str, int] = {}
    for index, step in enumerate(steps):
        if not is_blank(step):
            firsts.setdefault(normalise(step), index)
    indices = sorted(firsts.values())
    if len(indices) < 2:
        return []
    vectors = embedded.rows([steps[index] for index in indices])
    cosines = vectors @ vectors.T
    cosines[np.tril_indices(len(indices))] = -1
    pairs = [
        (indices[row], indices[column], min(1.0, float(cosines[row, column])))
        for row, column in np.argwhere(cosines >= POSSIBLE_DUPLICATE_SIMILARITY)
    ]
    pairs.sort(key=lambda pair: (-pair[2], pair[:2]))
    del pairs[_MOST_PAIRS:]
    return [
        Repetition((first, second), cosine, _doubt(steps[first], steps[second], cosine, embedded))
        for first, second, cosine in pairs
    ]


def grouped(repetitions: Iterable[Repetition]) -> list[Repetition]:
    """Joins repetitions that share a step, ordered by the first step. Each step is in one group at most.

    The similarity of a group is the lowest of its repetitions.
    """
    groups: list[Repetition] = []
    for repetition in repetitions:
        steps, similarity, apart = set(repetition.steps), repetition.similarity, []
        for group in groups:
            if steps.isdisjoint(group.steps):
                apart.append(group)
            else:
                steps.update(group.steps)
                similarity = min(similarity, group.similarity)
        groups = [*apart, Repetition(tuple(sorted(steps)), similarity)]
    return sorted(groups, key=lambda group: group.steps)


def _doubt(first: str, second: str, cosine: float, embedded: Embedded) -> str:
    if cosine < DUPLICATE_SIMILARITY:
        return f"below {DUPLICATE_SIMILARITY}"
    if first in embedded.truncated or second in embedded.truncated:
        return "only their beginnings were compared"
    difference = contrast(first, second)
    return "" if difference is None else f"they differ in {difference}"


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
    threshold = OFF_TOPIC_SIMILARITY
    if len(pool) >= OFF_TOPIC_MIN_POOL:
        typical = float(np.median(pool @ goal))
        threshold = min(threshold, typical - OFF_TOPIC_DISTANCE_FROM_POOL)
    return TopicScreen(float(script @ goal), threshold)


def screen_support(steps: Floats, pool: Sequence[Floats]) -> SupportScreen:
    """Screens for an unsupported step, compared with the weakest steps of the pool's scripts.

    Args:
        steps: The unit vectors of the script's steps, (steps, dimension).
        pool: The unit vectors of each other script; at least REDUNDANT_MIN_POOL scripts.
    """
    backing = support(steps, pool)
    usual = [float(support(script, others).min()) for script, others in _each_against_the_rest(pool)]
    threshold = float(np.percentile(usual, 100 - REDUNDANT_PERCENTILE))
    weakest = int(np.argmin(backing))
    return SupportScreen(weakest, float(backing[weakest]), threshold - REDUNDANT_MARGIN)


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
    percentile = float(np.percentile(usual, 100 - ORDER_PERCENTILE))
    threshold = min(percentile, ORDER_MAX_CONSISTENCY)
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
    common = (best_matches(candidates, pool) >= CONSENSUS_SIMILARITY).mean(axis=1)
    covered = (candidates @ steps.T).max(axis=1) >= CONSENSUS_SIMILARITY
    named: list[int] = []
    for index in np.lexsort((np.arange(len(candidates)), -common)):
        if len(named) == limit or common[index] < CONSENSUS_SHARE:
            break
        near_to_named = bool(named and (candidates[named] @ candidates[index]).max() >= CONSENSUS_SIMILARITY)
        if not covered[index] and not near_to_named:
            named.append(int(index))
    return named


def _each_against_the_rest(pool: Sequence[Floats]) -> list[tuple[Floats, list[Floats]]]:
    return [(script, [*pool[:index], *pool[index + 1 :]]) for index, script in enumerate(pool)]
