"""Leaderboards: models ranked by a mean with a confidence interval clustered by sample."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.results.students_t import quantile
from dramaturg.results.sums import ModelSums

PRIMARY_MEASURES = {"decision": "correct", "dialogue": "rating", "graphs": "f1", "texts": "win/roles"}
"""The default measure of a ranking, by the name of the result in RunSample.

Scripts have no entry: they are ranked by all criteria together.
"""
LOWER_IS_BETTER = frozenset({"edit_distance"})
SCALES = {"rating": (1.0, 10.0), "edit_distance": (0.0, math.inf)}
"""The smallest and largest value of each measure whose scale is not [0, 1]."""

_ALL = ""
_CONFIDENCE = 0.95


def leaderboard(sums: Iterable[ModelSums], kind: str, measure: str = "") -> list[LeaderboardEntry]:
    """Ranks the models.

    The mean of a model is taken over all its judgements with a value. Its interval is that of a ratio of
    sums over samples, mean +- t * s, with s^2 = K / (K - 1) * sum over samples of (y_i - mean * n_i)^2 / n^2:
    sample i has n_i judgements that sum to y_i, n is the sum of n_i, K the number of samples, and t has K - 1
    degrees of freedom (Cochran 1977, Sampling Techniques, section 2.11; Miller 2024, arXiv:2411.00640,
    section 2.2). It is clipped to the measure's scale.

    Args:
        sums: Sums for each model and measure; for scripts also for the measure "", all criteria together.
        kind: The name of the result in RunSample, e.g. "scripts".
        measure: The measure to rank by. Empty: the default of the kind (see ``PRIMARY_MEASURES``).

    Returns:
        Entries from best to worst; models without a mean last, by name.
    """
    measure = measure or PRIMARY_MEASURES.get(kind, _ALL)
    by_model: defaultdict[str, dict[str, ModelSums]] = defaultdict(dict)
    for one in sums:
        by_model[one.model][one.measure] = one
    entries = [_entry(model, of_model, measure) for model, of_model in by_model.items()]
    entries = [entry for entry in entries if entry.judgement_count]
    sign = 1.0 if measure in LOWER_IS_BETTER else -1.0
    entries.sort(key=lambda entry: _order(entry, sign))
    for position, entry in enumerate(entries, start=1):
        if entry.HasField("mean"):
            before = entries[position - 2] if position > 1 else None
            entry.rank = before.rank if before is not None and before.mean == entry.mean else position
    return entries


def mean_and_interval(sums: ModelSums) -> tuple[float | None, float | None, float | None]:
    """The mean and the bounds of its 95 % interval; None where undefined."""
    if not sums.judged:
        return None, None, None
    mean = sums.total / sums.judged
    if sums.samples < 2:
        return mean, None, None
    deviation = sums.squared_totals - 2 * mean * sums.cross + mean * mean * sums.squared_counts
    clusters = sums.samples
    variance = clusters / (clusters - 1) * max(0.0, deviation) / sums.judged**2
    margin = quantile(0.5 + _CONFIDENCE / 2, clusters - 1) * math.sqrt(variance)
    return mean, mean - margin, mean + margin


def is_primary(kind: str, measure: str) -> bool:
    """Whether a measure counts towards the default ranking of a kind (see GetLeaderboardRequest)."""
    primary = PRIMARY_MEASURES.get(kind)
    return primary is None or measure == primary


def _entry(model: str, by_measure: dict[str, ModelSums], measure: str) -> LeaderboardEntry:
    entry = LeaderboardEntry(model=model)
    for name, sums in by_measure.items():
        if name != _ALL and sums.judged:
            entry.means_by_measure[name] = sums.total / sums.judged
    ranked = by_measure.get(measure)
    if ranked is None:
        return entry
    mean, lower, upper = mean_and_interval(ranked)
    if mean is not None:
        entry.mean = mean
    if lower is not None and upper is not None:
        least, largest = SCALES.get(measure, (0.0, 1.0))
        entry.lower, entry.upper = max(least, lower), min(largest, upper)
    entry.judged_count, entry.judgement_count = ranked.judged, ranked.judgements
    entry.coverage = ranked.judged / ranked.judgements if ranked.judgements else 0.0
    entry.sample_count = ranked.samples
    entry.abstentions_by_reason.update(Counter(ranked.abstentions_by_reason))
    return entry


def _order(entry: LeaderboardEntry, sign: float) -> tuple[bool, float, str]:
    return not entry.HasField("mean"), sign * entry.mean, entry.model
