"""Win rates and strengths of systems from judged pairs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse, special

from services.alignment.bootstrap import Array, Resampling, bootstrap
from services.alignment.estimates import Estimate, absent, clustered_proportion
from services.alignment.jackknife import Scale, pseudo_values, with_jackknife
from services.alignment.pairs import Pairs
from services.alignment.ratings import Ratings, rate
from services.alignment.regression import logistic

MAX_RATED_SYSTEMS = 100
"""The most systems of a request."""
REFERENCE_WEIGHT = 0.2
"""The weight of the pairs of reference systems in AlpacaEval 2."""

_DRAW = 0.5
_FEWEST = 2


@dataclass(frozen=True)
class WinRate:
    system: str
    opponent: str
    win_rate: Estimate
    length_controlled: Estimate | None
    draws: int


@dataclass(frozen=True)
class Preferences:
    win_rates: Sequence[WinRate]
    ratings: Ratings


def measure(
    pairs: Pairs,
    baseline: str,
    resampling: Resampling,
    *,
    adjust_position: bool,
    references: Collection[str] = (),
    reference_weight: float = REFERENCE_WEIGHT,
) -> Preferences:
    """Measures win rates of every two systems and the strengths of all.

    Args:
        pairs: The pairs with a preference.
        baseline: The origin of ratings, and the opponent of length-controlled win rates; empty: none.
        resampling: How intervals are made.
        adjust_position: Whether strengths are adjusted for which text was shown first.
        references: Variants of the baseline, whose pairs with it are in the regressions of other systems.
        reference_weight: The weight of their pairs, divided by their number.
    """
    return Preferences(
        _win_rates(pairs, baseline, resampling, references, reference_weight),
        rate(pairs, baseline, resampling, adjust_position=adjust_position),
    )


def _win_rates(
    pairs: Pairs, baseline: str, resampling: Resampling, references: Collection[str], reference_weight: float
) -> list[WinRate]:
    found = []
    code = {name: place for place, name in enumerate(pairs.systems)}
    known = [name for name in sorted(references) if name in code and baseline in code]
    beside = [own for name in known if (own := _Own(pairs, code[name], code[baseline])).preference.size]
    low, high = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    for one, other in np.unique(np.stack([low, high]), axis=1).T.tolist():
        resampling.checkpoint()
        if pairs.systems[one] == baseline:
            one, other = other, one
        own = _Own(pairs, one, other)
        controlled = None
        if pairs.systems[other] == baseline:
            others = [] if pairs.systems[one] in references else beside
            controlled = _length_controlled(own, others, reference_weight, resampling)
        found.append(
            WinRate(
                pairs.systems[one],
                pairs.systems[other],
                _win_rate(own, resampling.level),
                controlled,
                int((own.preference == _DRAW).sum()),
            )
        )
    return sorted(found, key=lambda rate: (rate.system, rate.opponent))


class _Own:
    """The pairs of two systems, from the side of the first."""

    def __init__(self, pairs: Pairs, one: int, other: int) -> None:
        forward = (pairs.first == one) & (pairs.second == other)
        backward = (pairs.first == other) & (pairs.second == one)
        both = forward | backward
        sign = np.where(forward[both], 1.0, -1.0)
        self.preference: Array = np.where(forward[both], pairs.preference[both], 1 - pairs.preference[both])
        self.longer: Array = sign * pairs.longer[both]
        self.difficulty: Array = pairs.difficulty[both]
        _, self.prompt = np.unique(pairs.prompt[both], return_inverse=True)

    @property
    def lengths(self) -> Array:
        """The tanh of the differences of lengths in standard deviations; 0 where they do not differ."""
        deviation = float(self.longer.std())
        return np.tanh(self.longer / deviation) if deviation > 0 else np.zeros(self.longer.size)


def _win_rate(own: _Own, level: float) -> Estimate:
    """The mean preference with the jackknife over prompts, or Wilson's interval if all are equal."""
    units = int(own.prompt.max()) + 1
    sums = np.bincount(own.prompt, own.preference, units).astype(np.float64)
    sizes = np.bincount(own.prompt, minlength=units).astype(np.float64)
    value = float(sums.sum() / sizes.sum())
    if units >= _FEWEST:
        deleted = (sums.sum() - sums) / (sizes.sum() - sizes)
        pseudo = pseudo_values(value, deleted, units)
        found = with_jackknife(value, own.preference.size, pseudo, level, Scale.SHARE)
        if found.lower is not None:
            return found
    return clustered_proportion(sums, sizes, level, undefined="")


def _length_controlled(
    own: _Own, references: Sequence[_Own], reference_weight: float, resampling: Resampling
) -> Estimate:
    """The win rate at equal lengths (Dubois et al. 2024, Length-Controlled AlpacaEval).

    A logistic regression of the preference on the tanh of the difference of lengths in standard deviations,
    and on the prompt's difficulty where all pairs have one; its mean prediction with a difference of 0. Pairs
    of reference systems share these effects, but not the constant.
    """
    count = own.preference.size
    parts = [own, *references]
    if any(np.isnan(part.longer).any() for part in parts):
        return absent("a pair has no lengths", count)
    columns = [np.concatenate([np.full(part.preference.size, part is own, np.float64) for part in parts])]
    if not any(np.isnan(part.difficulty).any() for part in parts):
        columns.append(np.concatenate([part.difficulty for part in parts]))
    equal = np.stack(columns, axis=1)[:count]
    lengths = np.concatenate([part.lengths for part in parts])
    design = np.stack([*columns, lengths] if lengths.any() else columns, axis=1)
    preference = np.concatenate([part.preference for part in parts])
    fixed = np.full(preference.size - count, reference_weight / max(1, len(references)))
    units = int(own.prompt.max()) + 1
    drawn = sparse.csr_array((np.ones(count), (own.prompt, np.arange(count))), shape=(units, count))

    def statistic(weights: Array) -> Array:
        found = np.full((weights.shape[0], 1), np.nan)
        for place, items in enumerate(weights @ drawn):
            resampling.checkpoint()
            effects = logistic(design, preference, np.concatenate([items, fixed]))
            if effects is not None:
                shares = special.expit(equal @ effects[: equal.shape[1]])
                found[place] = float(items @ shares) / float(items.sum())
        return found

    found = bootstrap(statistic, np.ones(units, np.intp), resampling, width=count)
    undefined = "the preferences are determined by the lengths, or are all equal"
    return found.estimate(0, count, undefined, Scale.SHARE)
