"""Win rates and strengths of systems from judged pairs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from services.alignment.bootstrap import Resampling
from services.alignment.estimates import Estimate, clustered_proportion
from services.alignment.jackknife import Scale, pseudo_values, with_jackknife
from services.alignment.length_control import JointDifficulties, LengthControlled, Side, length_controlled
from services.alignment.pairs import Pairs
from services.alignment.ratings import Ratings, rate

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
    length_controlled: LengthControlled | None
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
    beside = [own for name in known if (own := Side(pairs, code[name], code[baseline])).preference.size]
    joint = _joint_difficulties(pairs, baseline, references, resampling)
    low, high = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    for one, other in np.unique(np.stack([low, high]), axis=1).T.tolist():
        resampling.checkpoint()
        if pairs.systems[one] == baseline:
            one, other = other, one
        own = Side(pairs, one, other)
        controlled = None
        if pairs.systems[other] == baseline:
            others = [] if pairs.systems[one] in references else beside
            difficulties = joint.without(one, own.prompt_of_all)
            controlled = length_controlled(own, others, reference_weight, difficulties, resampling)
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


def _joint_difficulties(
    pairs: Pairs, baseline: str, references: Collection[str], resampling: Resampling
) -> JointDifficulties:
    """Those of the pairs with the baseline, but for its variants."""
    sides = {
        place: Side(pairs, place, pairs.systems.index(baseline))
        for place, name in enumerate(pairs.systems)
        if baseline in pairs.systems and name != baseline and name not in references
    }
    prompts = int(pairs.prompt.max()) + 1
    return JointDifficulties(
        {place: side for place, side in sides.items() if side.preference.size}, prompts, resampling.checkpoint
    )


def _win_rate(own: Side, level: float) -> Estimate:
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
