"""Win rates at equal lengths (Dubois et al. 2024, Length-Controlled AlpacaEval)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
from scipy import sparse, special

from services.alignment.bootstrap import Array, Index, Resampling, bootstrap
from services.alignment.estimates import Estimate, absent
from services.alignment.jackknife import Scale
from services.alignment.pairs import Pairs
from services.alignment.regression import logistic

LEAST_SUPPORT = 0.05
"""The least share of texts that are not longer, and of those that are not shorter, for a rate."""
FEWEST_OTHERS = 2
"""The fewest other systems, in the mean over prompts, from which difficulties are estimated."""

_SWEEPS = 200
_STEPS = 20
_TOLERANCE = 1e-6
# Newton's steps of log odds are no longer, so that they do not overshoot.
_LONGEST_STEP = 2.0
# Keeps the effects finite of a system that wins or loses everything; 1 / variance.
_RIDGE = 0.01


class Adjustment(Enum):
    """What a win rate at equal lengths is adjusted for."""

    LENGTH = "length alone"
    GIVEN_DIFFICULTY = "length and the difficulties of the request"
    JOINT_DIFFICULTY = "length and difficulties estimated from the other systems"


@dataclass(frozen=True)
class LengthControlled:
    rate: Estimate
    adjustment: Adjustment
    longer_share: float | None
    """The share of pairs in which the system's text is longer; ``None`` where a length is unknown."""


class Side:
    """The pairs of two systems, from the side of the first."""

    def __init__(self, pairs: Pairs, one: int, other: int) -> None:
        forward = (pairs.first == one) & (pairs.second == other)
        backward = (pairs.first == other) & (pairs.second == one)
        both = forward | backward
        sign = np.where(forward[both], 1.0, -1.0)
        self.preference: Array = np.where(forward[both], pairs.preference[both], 1 - pairs.preference[both])
        self.longer: Array = sign * pairs.longer[both]
        self.difficulty: Array = pairs.difficulty[both]
        self.prompt_of_all: Index = pairs.prompt[both]
        """The number of each pair's prompt among the prompts of all pairs."""
        _, self.prompt = np.unique(self.prompt_of_all, return_inverse=True)

    @cached_property
    def lengths(self) -> Array:
        """The tanh of the differences of lengths in standard deviations; 0 where they do not differ."""
        deviation = float(self.longer.std())
        return np.tanh(self.longer / deviation) if deviation > 0 else np.zeros(self.longer.size)


class JointDifficulties:
    """Difficulties of prompts from the pairs of many systems with one baseline.

    The log odds that a system is preferred are its constant, its effect of length, and the prompt's
    difficulty, which all systems share. Difficulties have a standard normal prior. The posterior mode is
    found by Newton's steps of the systems and of the prompts in turn.

    Args:
        sides: The pairs of each system with the baseline, by any key. Those without lengths are left out.
        prompts: The number of prompts of all pairs.
        checkpoint: Called between parts of the work; raises to end it.
    """

    def __init__(self, sides: Mapping[int, Side], prompts: int, checkpoint: Callable[[], None]) -> None:
        known = {key: side for key, side in sides.items() if not np.isnan(side.longer).any()}
        self._code = {key: code for code, key in enumerate(known)}
        self._prompts, self._checkpoint = prompts, checkpoint
        parts = list(known.values())
        sizes = [part.preference.size for part in parts]
        self._system = np.repeat(np.arange(len(parts)), sizes)
        self._prompt: Index = np.concatenate([part.prompt_of_all for part in parts] or [np.zeros(0, np.intp)])
        self._preference = np.concatenate([part.preference for part in parts] or [np.zeros(0)])
        self._lengths = np.concatenate([part.lengths for part in parts] or [np.zeros(0)])

    def without(self, key: int, prompts: Index) -> Array | None:
        """The difficulty of every prompt, from all systems but one; ``None`` if too few answered its prompts.

        Args:
            key: The system that is left out.
            prompts: The prompts of its pairs.
        """
        others = self._system != self._code.get(key, -1)
        count = np.bincount(self._prompt[others], minlength=self._prompts)[prompts]
        if count.mean() < FEWEST_OTHERS:
            return None
        odds, difficulty = self._fitted
        return self._step(self._prompt[others], self._preference[others], odds[others], difficulty, _STEPS)

    @cached_property
    def _fitted(self) -> tuple[Array, Array]:
        """The log odds of each pair without its difficulty, and the difficulty of each prompt."""
        constant, slope = np.zeros(len(self._code)), np.zeros(len(self._code))
        difficulty = np.zeros(self._prompts)
        for _ in range(_SWEEPS):
            self._checkpoint()
            means = special.expit(self._odds(constant, slope) + difficulty[self._prompt])
            step, change = self._systems_step(means, constant, slope)
            constant, slope = constant + step, slope + change
            odds = self._odds(constant, slope)
            moved = self._step(self._prompt, self._preference, odds, difficulty, 1)
            last, difficulty = difficulty, moved
            if max(np.abs(part).max(initial=0.0) for part in (step, change, moved - last)) < _TOLERANCE:
                break
        return self._odds(constant, slope), difficulty

    def _odds(self, constant: Array, slope: Array) -> Array:
        odds: Array = constant[self._system] + slope[self._system] * self._lengths
        return odds

    def _systems_step(self, means: Array, constant: Array, slope: Array) -> tuple[Array, Array]:
        """Newton's step of each system's constant and slope, with the difficulties as they are."""
        error, weight, lengths = self._preference - means, means * (1 - means), self._lengths

        def total(values: Array) -> Array:
            return np.bincount(self._system, values, constant.size).astype(np.float64)

        gradient = total(error) - _RIDGE * constant, total(error * lengths) - _RIDGE * slope
        first, last = total(weight) + _RIDGE, total(weight * lengths**2) + _RIDGE
        between = total(weight * lengths)
        determinant = first * last - between**2
        step = (last * gradient[0] - between * gradient[1]) / determinant
        change = (first * gradient[1] - between * gradient[0]) / determinant
        return np.clip(step, -_LONGEST_STEP, _LONGEST_STEP), np.clip(change, -_LONGEST_STEP, _LONGEST_STEP)

    def _step(self, prompt: Index, preference: Array, odds: Array, difficulty: Array, steps: int) -> Array:
        """Newton's steps of each prompt's difficulty, with the systems as they are."""
        for _ in range(steps):
            means = special.expit(odds + difficulty[prompt])
            gradient = np.bincount(prompt, preference - means, self._prompts) - difficulty
            weight = np.bincount(prompt, means * (1 - means), self._prompts) + 1.0
            step = np.clip(gradient / weight, -_LONGEST_STEP, _LONGEST_STEP)
            difficulty = difficulty + step
            if np.abs(step).max(initial=0.0) < _TOLERANCE:
                break
        return difficulty


def length_controlled(
    own: Side,
    references: Sequence[Side],
    reference_weight: float,
    joint: Array | None,
    resampling: Resampling,
) -> LengthControlled:
    """The win rate at equal lengths.

    A logistic regression of the preference on the tanh of the difference of lengths in standard deviations,
    and on the prompt's difficulty; its mean prediction with a difference of 0. The difficulties are those of
    the pairs where all have one, else those estimated from other systems, else none. Pairs of reference
    systems share these effects, but not the constant. Difficulties are taken as known by the interval.

    The rate is undefined where equal lengths are outside of the support: fewer than ``LEAST_SUPPORT`` of the
    texts are at least, or at most, as long as the baseline's.

    Args:
        own: The pairs of the system with the baseline.
        references: Those of variants of the baseline.
        reference_weight: The weight of their pairs, divided by their number.
        joint: The difficulty of every prompt, estimated from other systems; ``None``: not estimated.
        resampling: How intervals are made.
    """
    count = own.preference.size
    parts = [own, *references]
    if any(np.isnan(part.longer).any() for part in parts):
        return LengthControlled(absent("a pair has no lengths", count), Adjustment.LENGTH, None)
    difficulties, adjustment = _difficulties(parts, joint)
    longer = float((own.longer > 0).mean())
    for share, sense in (((own.longer >= 0).mean(), "shorter"), ((own.longer <= 0).mean(), "longer")):
        if share < LEAST_SUPPORT:
            reason = (
                "equal lengths are outside of the support: "
                f"the system's text is {sense} in {100 * (1 - share):.3g} % of the pairs"
            )
            return LengthControlled(absent(reason, count), adjustment, longer)
    columns = [np.concatenate([np.full(part.preference.size, part is own, np.float64) for part in parts])]
    if difficulties is not None:
        columns.append(difficulties)
    equal = np.stack(columns, axis=1)[:count]
    lengths = np.concatenate([part.lengths for part in parts])
    design = np.stack([*columns, lengths] if lengths.any() else columns, axis=1)
    preference = np.concatenate([part.preference for part in parts])
    fixed = np.full(preference.size - count, reference_weight / max(1, len(references)))
    units = int(own.prompt.max()) + 1
    drawn = sparse.csr_array((np.ones(count), (own.prompt, np.arange(count))), shape=(units, count))

    def statistic(weights: Array) -> Array:
        items: Array = np.asarray(weights @ drawn)
        every = np.concatenate([items, np.broadcast_to(fixed, (items.shape[0], fixed.size))], axis=1)
        effects = logistic(design, preference, every, resampling.checkpoint)
        shares = special.expit(effects[:, : equal.shape[1]] @ equal.T)
        found: Array = (items * shares).sum(axis=1, keepdims=True) / items.sum(axis=1, keepdims=True)
        return found

    found = bootstrap(statistic, np.ones(units, np.intp), resampling, width=count)
    undefined = "the preferences are determined by the lengths, or are all equal"
    return LengthControlled(found.estimate(0, count, undefined, Scale.SHARE), adjustment, longer)


def _difficulties(parts: Sequence[Side], joint: Array | None) -> tuple[Array | None, Adjustment]:
    """The difficulty of each pair, and what the win rate is adjusted for."""
    given = np.concatenate([part.difficulty for part in parts])
    if not np.isnan(given).any():
        return given, Adjustment.GIVEN_DIFFICULTY
    if joint is None:
        return None, Adjustment.LENGTH
    estimated = joint[np.concatenate([part.prompt_of_all for part in parts])]
    # Of equal difficulties nothing is learnt.
    if np.ptp(estimated) < _TOLERANCE:
        return None, Adjustment.LENGTH
    return estimated, Adjustment.JOINT_DIFFICULTY
