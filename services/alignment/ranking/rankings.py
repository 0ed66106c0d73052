"""The rankings of a request, over all items and by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from services.alignment.bootstrap import Index, Resampling
from services.alignment.errors import too_large
from services.alignment.estimates import BIASED_RESAMPLES, Estimate, absent
from services.alignment.ranking.means import MIN_SYSTEMS, ONE_TIE, Means, Rows, ranks, rhos, taus

MAX_SYSTEMS = 200
"""The most systems of one request: every two are compared in every resample."""
MAX_METHODS = 100
"""The most methods of one request: every two are compared."""
MAX_GROUPS = 2000
"""The most groups of one answer."""


@dataclass(frozen=True)
class RankedSystem:
    """One system in a ranking; see ``RankedSystem`` in the contract."""

    system: str
    mean: Estimate
    rank: float | None = None
    rank_lower: float | None = None
    rank_upper: float | None = None
    first_share: float | None = None
    difference: Estimate | None = None
    p: float | None = None
    adjusted_p: float | None = None


@dataclass(frozen=True)
class MethodRanking:
    """The ranking of the systems by one method, best first."""

    method: str
    systems: Sequence[RankedSystem]
    stability: Estimate


@dataclass(frozen=True)
class RankCorrelation:
    """The rank correlation of two methods."""

    first: str
    second: str
    spearman: Estimate
    kendall: Estimate


@dataclass(frozen=True)
class Ranking:
    tag: str
    value: str
    methods: Sequence[MethodRanking]
    correlations: Sequence[RankCorrelation]


@dataclass(frozen=True)
class Design:
    rows: Rows
    systems: Sequence[str]
    """By name."""
    methods: Sequence[str]
    """By name, as the columns of the scores."""
    groups: Mapping[str, tuple[Sequence[str], Index]]
    """By tag: its values, and which each row has, -1 for none."""
    baseline: str = ""
    """The system that differences are to; empty: the first of each ranking."""


def rank(design: Design, resampling: Resampling) -> list[Ranking]:
    """Ranks over all rows, then over those of each value of each tag.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many systems, methods or groups.
    """
    counts = (
        ("systems", MAX_SYSTEMS, len(design.systems)),
        ("methods", MAX_METHODS, len(design.methods)),
        ("groups", MAX_GROUPS, sum(len(values) for values, _ in design.groups.values())),
    )
    for what, limit, actual in counts:
        if actual > limit:
            raise too_large(what, limit=limit, actual=actual)
    rankings = [_rank("", "", design.rows, design, resampling)]
    for tag, (values, codes) in design.groups.items():
        for code, value in enumerate(values):
            resampling.checkpoint()
            rankings.append(_rank(tag, value, design.rows.where(codes == code), design, resampling))
    return rankings


def _rank(tag: str, value: str, rows: Rows, design: Design, resampling: Resampling) -> Ranking:
    means = [Means(rows, column, len(design.systems), resampling) for column in range(len(design.methods))]
    rankings = [
        MethodRanking(method, list(_ranked(found, design)), found.stability())
        for method, found in zip(design.methods, means, strict=True)
    ]
    correlations = [
        _correlate(design.methods, first, second, means, resampling)
        for first, second in combinations(range(len(design.methods)), 2)
    ]
    return Ranking(tag, value, rankings, correlations)


def _ranked(means: Means, design: Design) -> Iterator[RankedSystem]:
    point, replicates = means.ranks()
    places = np.flatnonzero(means.known)
    names = [design.systems[place] for place in places.tolist()]
    pairs = means.all_pairs()
    order = np.argsort(point, kind="stable").tolist()
    firsts = replicates == replicates.min(axis=1, keepdims=True) if places.size else replicates
    shares = firsts / firsts.sum(axis=1, keepdims=True) if places.size else firsts
    baseline = names.index(design.baseline) if design.baseline in names else None
    if not design.baseline and order:
        baseline = order[0]
    for place in order:
        system = int(places[place])
        found = RankedSystem(names[place], means.estimate(system), float(point[place]))
        if replicates.shape[0]:
            found = replace(found, first_share=float(shares[:, place].mean()))
        if pairs is not None:
            lower, upper = pairs.rank_interval(place)
            found = replace(found, rank_lower=float(lower), rank_upper=float(upper))
        if baseline is not None and place != baseline:
            count = int(means.counts[system])
            value = float(means.point[system] - means.point[places[baseline]])
            found = replace(found, difference=Estimate(value, count))
            if pairs is not None:
                found = replace(
                    found,
                    difference=pairs.difference(place, baseline, count),
                    p=float(pairs.p[place, baseline]),
                    adjusted_p=float(pairs.adjusted[place, baseline]),
                )
        yield found
    for system in np.flatnonzero(~means.known & (means.totals > 0)).tolist():
        yield RankedSystem(design.systems[system], means.estimate(system))


def _correlate(
    methods: Sequence[str], first: int, second: int, means: Sequence[Means], resampling: Resampling
) -> RankCorrelation:
    resampling.checkpoint()
    one, other = means[first], means[second]
    known = one.known & other.known
    count = int(known.sum())
    names = methods[first], methods[second]
    reason = f"{count} systems are fewer than {MIN_SYSTEMS}" if count < MIN_SYSTEMS else ""
    for name, found in zip(names, (one, other), strict=True):
        if not reason and np.ptp(ranks(found.point[np.newaxis, known])) == 0:
            reason = f"{ONE_TIE} by {name}"
    if reason:
        return RankCorrelation(*names, absent(reason, count), absent(reason, count))
    points = [ranks(found.point[np.newaxis, known]) for found in (one, other)]
    figures = [
        Estimate(float(figure(*points)[0]), count, withheld=BIASED_RESAMPLES) for figure in (rhos, taus)
    ]
    return RankCorrelation(*names, *figures)
