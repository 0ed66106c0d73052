"""Judged pairs of texts: win rates, strengths of systems, and win rates at equal lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from dramaturg.api.alignment.v1 import preference_pb2 as pb
from services.alignment.bootstrap import Array, Index, Resampling, bootstrap
from services.alignment.estimates import (
    Estimate,
    Scale,
    absent,
    clustered_proportion,
    pseudo_values,
    with_jackknife,
)
from services.alignment.regression import logistic


@dataclass(frozen=True)
class Pairs:
    """Judged pairs as parallel arrays."""

    systems: Sequence[str]
    prompt: Index
    """The number of each pair's prompt, from 0 without gaps."""
    first: Index
    second: Index
    preference: Array
    """For the first text, from 0 to 1."""
    longer: Array
    """The length of the first text less that of the second, NaN where one is unknown."""
    difficulty: Array
    """The prompt's difficulty, NaN where it is unknown."""


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
) -> pb.WinRate:
    """The part of a win rate that is about equal lengths.

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
        return pb.WinRate(
            length_controlled_win_rate=absent("a pair has no lengths", count).encode(),
            length_control=pb.LENGTH_CONTROL_LENGTH_ALONE,
        )
    difficulties, control = _difficulties(parts, joint)
    controlled = pb.WinRate(length_control=control, longer_share=float((own.longer > 0).mean()))
    for share, sense in (((own.longer >= 0).mean(), "shorter"), ((own.longer <= 0).mean(), "longer")):
        if share < LEAST_SUPPORT:
            reason = (
                "equal lengths are outside of the support: "
                f"the system's text is {sense} in {100 * (1 - share):.3g} % of the pairs"
            )
            controlled.length_controlled_win_rate.CopyFrom(absent(reason, count).encode())
            return controlled
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
    rate = found.estimate(0, count, undefined, Scale.SHARE)
    controlled.length_controlled_win_rate.CopyFrom(rate.encode())
    return controlled


def _difficulties(
    parts: Sequence[Side], joint: Array | None
) -> tuple[Array | None, pb.LengthControl.ValueType]:
    """The difficulty of each pair, and what the win rate is adjusted for."""
    given = np.concatenate([part.difficulty for part in parts])
    if not np.isnan(given).any():
        return given, pb.LENGTH_CONTROL_GIVEN_DIFFICULTY
    if joint is None:
        return None, pb.LENGTH_CONTROL_LENGTH_ALONE
    estimated = joint[np.concatenate([part.prompt_of_all for part in parts])]
    # Of equal difficulties nothing is learnt.
    if np.ptp(estimated) < _TOLERANCE:
        return None, pb.LENGTH_CONTROL_LENGTH_ALONE
    return estimated, pb.LENGTH_CONTROL_JOINT_DIFFICULTY


ELO_SCALE = 400 / math.log(10)
"""Points of the Elo scale for one unit of log odds."""
FEWEST_RESAMPLED = 100
"""With fewer prompts the intervals of ratings are the jackknife's: the bootstrap's cover too little."""
PRIOR = "one more draw of every two systems that were compared"
"""The prior of ratings where some systems win, or lose, everything against the others."""

_ORIGIN = "it is the origin of the ratings"
_BY_PRIOR = "it wins, or loses, everything against the others, so the prior gives its rating"
_UNDETERMINED = "the ratings are not determined by the pairs"
_DRAW = 0.5
_NAMED = 5


def rate(
    pairs: Pairs, baseline: str, resampling: Resampling, *, adjust_position: bool
) -> pb.MeasurePreferencesResponse:
    """The strengths on the Elo scale, the strongest first; a draw is half a win of each.

    Finite strengths are most likely where every system is reached from every other by wins (Ford 1957). Where
    some are not, one draw is added for every two systems that were compared: a weak prior (half a win is that
    of Jeffreys for a share). Ratings across such a border have no interval. Systems that no chain of
    comparisons connects with the baseline have no rating.

    Args:
        pairs: The pairs with a preference.
        baseline: The origin; empty: the mean.
        resampling: How intervals are made.
        adjust_position: Whether strengths are adjusted for which text was shown first.
    """
    systems = len(pairs.systems)
    cells, cell = np.unique(pairs.first * systems + pairs.second, return_inverse=True)
    first, second = np.divmod(cells, systems)
    units = int(pairs.prompt.max()) + 1
    shape = (units, cells.size)
    counts = sparse.csr_array((np.ones(pairs.prompt.size), (pairs.prompt, cell)), shape=shape)
    wins = sparse.csr_array((pairs.preference, (pairs.prompt, cell)), shape=shape)
    everything = np.ones(units)
    origin = pairs.systems.index(baseline) if baseline else None
    compared = _components(np.concatenate([first, second]), np.concatenate([second, first]), systems)
    rated = compared == compared[origin or 0]
    whole = bool(rated.all())
    by_wins = _by_wins(first, second, everything @ counts, everything @ wins, systems)
    within = np.unique(by_wins[rated]).size == 1

    design = np.zeros((cells.size, systems + 1))
    design[np.arange(cells.size), first] += 1
    design[np.arange(cells.size), second] -= 1
    design[:, systems] = float(adjust_position)
    free = [*np.flatnonzero(rated)[1:].tolist(), *([systems] if adjust_position else [])]
    inside = rated[first]
    rows, draws = design[np.ix_(inside, free)], np.zeros(0)
    if not within:
        pairs_inside = np.stack([np.minimum(first, second), np.maximum(first, second)])[:, inside]
        one, other = np.unique(pairs_inside, axis=1)
        drawn = np.zeros((one.size, systems + 1))
        drawn[np.arange(one.size), one], drawn[np.arange(one.size), other] = 1, -1
        rows, draws = np.concatenate([rows, drawn[:, free]]), np.ones(one.size)

    def statistic(weights: Array) -> Array:
        played, won = weights @ counts, weights @ wins
        own, total = (
            np.concatenate([some[:, inside], np.broadcast_to(part, (weights.shape[0], part.size))], axis=1)
            for some, part in ((won, _DRAW * draws), (played, draws))
        )
        shares = np.divide(own, total, out=np.zeros(own.shape), where=total > 0)
        strengths = np.zeros((weights.shape[0], systems + 1))
        strengths[:, free] = logistic(rows, shares, total, resampling.checkpoint)
        if within:
            strengths[~connected(played, won)] = np.nan
        strength = strengths[:, :systems]
        zero = strength[:, [origin]] if origin is not None else strength.mean(axis=1, keepdims=True)
        strengths[:, :systems] = ELO_SCALE * (strength - zero)
        # A system that is not rated has the strength 0 of the model, which says nothing where it has no fit.
        strengths[np.isnan(strengths).any(axis=1)] = np.nan
        return strengths

    def connected(played: Array, won: Array) -> NDArray[np.bool_]:
        """Whether each rated system is reached from every other by wins, in each resample."""
        known: dict[bytes, bool] = {}
        found = []
        for one, wins_of_one in zip(played, won, strict=True):
            # Many resamples have wins in the same pairs.
            key = np.packbits(np.concatenate([wins_of_one > 0, one - wins_of_one > 0])).tobytes()
            if key not in known:
                resampling.checkpoint()
                groups = _by_wins(first, second, one, wins_of_one, systems)[rated]
                known[key] = np.unique(groups).size == 1
            found.append(known[key])
        return np.array(found)

    played = np.bincount(pairs.first, minlength=systems) + np.bincount(pairs.second, minlength=systems)
    apart = _apart(pairs.systems, compared, origin)
    if not whole and origin is None:
        missing = [absent(apart, int(played[place])) for place in range(systems)]
        effect = absent(apart, pairs.prompt.size) if adjust_position else None
        return _encode(zip(pairs.systems, missing, strict=True), effect, "")
    found = bootstrap(statistic, np.ones(units, np.intp), resampling, width=cells.size)
    scale = Scale.REAL if units < FEWEST_RESAMPLED else None

    def rating(place: int) -> Estimate:
        if not rated[place]:
            return absent(apart, int(played[place]))
        one = found.estimate(place, int(played[place]), _UNDETERMINED, scale)
        if place == origin:
            return replace(one, withheld=_ORIGIN) if one.withheld else one
        if not within and (origin is None or by_wins[place] != by_wins[origin]):
            return Estimate(one.value, one.count, undefined=one.undefined, withheld=_BY_PRIOR)
        return one

    ratings = [(name, rating(place)) for place, name in enumerate(pairs.systems)]
    ratings.sort(key=lambda one: (-(one[1].value if one[1].value is not None else -math.inf), one[0]))
    effect = found.estimate(systems, pairs.prompt.size, _UNDETERMINED, scale) if adjust_position else None
    return _encode(ratings, effect, "" if within else PRIOR)


def _encode(
    ratings: Iterable[tuple[str, Estimate]], position_effect: Estimate | None, prior: str
) -> pb.MeasurePreferencesResponse:
    return pb.MeasurePreferencesResponse(
        ratings=[pb.Rating(system=name, elo=elo.encode()) for name, elo in ratings],
        position_effect=position_effect.encode() if position_effect is not None else None,
        rating_prior=prior,
    )


def _apart(systems: Sequence[str], compared: Index, origin: int | None) -> str:
    """Why systems have no rating: they were never compared, not even over others."""
    if origin is not None:
        return f"no chain of comparisons connects it with {systems[origin]}"
    groups = [np.flatnonzero(compared == code).tolist() for code in np.unique(compared)]
    named = [", ".join(systems[place] for place in group[:_NAMED]) for group in groups[:_NAMED]]
    return (
        f"the systems are {len(groups)} groups that no comparison connects: {' | '.join(named)}; "
        "name a baseline to rate its group"
    )


def _by_wins(first: Index, second: Index, played: Array, won: Array, systems: int) -> Index:
    """The number of each system's group, within which each is reached from every other by wins."""
    beats, loses = won > 0, played - won > 0
    start = np.concatenate([first[beats], second[loses]])
    end = np.concatenate([second[beats], first[loses]])
    return _components(start, end, systems)


def _components(start: Index, end: Index, systems: int) -> Index:
    # Imported here, since it brings scipy.linalg, which no other part of the start needs.
    from scipy.sparse.csgraph import connected_components

    graph = sparse.csr_array((np.ones(start.size), (start, end)), shape=(systems, systems))
    found: Index = connected_components(graph, connection="strong")[1].astype(np.intp)
    return found


MAX_RATED_SYSTEMS = 100
"""The most systems of a request."""
REFERENCE_WEIGHT = 0.2
"""The weight of the pairs of reference systems in AlpacaEval 2."""

_FEWEST = 2


def measure(
    pairs: Pairs,
    baseline: str,
    resampling: Resampling,
    *,
    adjust_position: bool,
    references: Collection[str] = (),
    reference_weight: float = REFERENCE_WEIGHT,
) -> pb.MeasurePreferencesResponse:
    """Measures win rates of every two systems and the strengths of all.

    Args:
        pairs: The pairs with a preference.
        baseline: The origin of ratings, and the opponent of length-controlled win rates; empty: none.
        resampling: How intervals are made.
        adjust_position: Whether strengths are adjusted for which text was shown first.
        references: Variants of the baseline, whose pairs with it are in the regressions of other systems.
        reference_weight: The weight of their pairs, divided by their number.
    """
    found = rate(pairs, baseline, resampling, adjust_position=adjust_position)
    found.win_rates.extend(_win_rates(pairs, baseline, resampling, references, reference_weight))
    return found


def _win_rates(
    pairs: Pairs, baseline: str, resampling: Resampling, references: Collection[str], reference_weight: float
) -> list[pb.WinRate]:
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
        rate = pb.WinRate(
            system=pairs.systems[one],
            opponent=pairs.systems[other],
            win_rate=_win_rate(own, resampling.level).encode(),
            draw_count=int((own.preference == _DRAW).sum()),
        )
        if pairs.systems[other] == baseline:
            others = [] if pairs.systems[one] in references else beside
            difficulties = joint.without(one, own.prompt_of_all)
            rate.MergeFrom(length_controlled(own, others, reference_weight, difficulties, resampling))
        found.append(rate)
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
