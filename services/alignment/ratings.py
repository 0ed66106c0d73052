"""Strengths of systems from judged pairs (Bradley and Terry 1952)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from services.alignment.bootstrap import Array, Index, Resampling, bootstrap
from services.alignment.estimates import Estimate, absent
from services.alignment.jackknife import Scale
from services.alignment.pairs import Pairs
from services.alignment.regression import logistic

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


@dataclass(frozen=True)
class Ratings:
    systems: Sequence[tuple[str, Estimate]]
    """The systems with their Elo ratings, the strongest first."""
    position_effect: Estimate | None
    prior: str
    """The name of the prior; empty: none."""


def rate(pairs: Pairs, baseline: str, resampling: Resampling, *, adjust_position: bool) -> Ratings:
    """The strengths on the Elo scale; a draw is half a win of each.

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
        missing = [(name, absent(apart, int(played[place]))) for place, name in enumerate(pairs.systems)]
        return Ratings(missing, absent(apart, pairs.prompt.size) if adjust_position else None, "")
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
    return Ratings(ratings, effect, "" if within else PRIOR)


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
