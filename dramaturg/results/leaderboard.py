"""Leaderboards: models ranked by a mean with a confidence interval clustered by sample."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.kinds import find_kind
from dramaturg.results.coverage import judged_share
from dramaturg.results.means import ModelSums, mean_of_sums

DEFAULT_MINIMUM_COVERAGE = 0.5
"""The default of ``SummaryOptions.minimum_coverage``."""
LOWER_IS_BETTER = frozenset({"edit_distance"})
SCALES = {"rating": (1.0, 10.0), "edit_distance": (0.0, math.inf), "challenging_turn": (0.0, math.inf)}
"""The smallest and largest value of each measure whose scale is not [0, 1]."""

_ALL = ""


def leaderboard(
    sums: Iterable[ModelSums],
    kind: str,
    measure: str = "",
    *,
    minimum_coverage: float = DEFAULT_MINIMUM_COVERAGE,
) -> list[LeaderboardEntry]:
    """Ranks the models.

    The mean of a model is taken over all its judgements with a value, with an interval clustered by sample
    (``dramaturg.results.means``).

    Args:
        sums: Sums for each model and measure; for scripts also for the measure "", all criteria together.
        kind: The name of the result in RunSample, e.g. "scripts".
        measure: The measure to rank by. Empty: that of ``primary_measure``.
        minimum_coverage: Models judged on a smaller share of the judgements asked for are unranked.
            From 0 to 1.

    Returns:
        Entries from best to worst; then unranked ones in the same order, those without a mean last, by name.
        None for a kind without models under test.
    """
    if (found := find_kind(kind)) is not None and not found.results.ranked:
        return []
    sums = list(sums)
    measure = measure or primary_measure(kind, (one.measure for one in sums))
    by_model: defaultdict[str, dict[str, ModelSums]] = defaultdict(dict)
    for one in sums:
        by_model[one.model][one.measure] = one
    entries = [_entry(model, of_model, measure) for model, of_model in by_model.items()]
    entries = [entry for entry in entries if entry.judgement_count]
    sign = 1.0 if _base(measure) in LOWER_IS_BETTER else -1.0
    entries.sort(key=lambda entry: _order(entry, sign))
    ranked = [entry for entry in entries if entry.HasField("mean") and entry.coverage >= minimum_coverage]
    for position, entry in enumerate(ranked, start=1):
        before = ranked[position - 2] if position > 1 else None
        entry.rank = before.rank if before is not None and before.mean == entry.mean else position
    return ranked + [entry for entry in entries if not entry.rank]


def primary_measure(kind: str, measures: Iterable[str]) -> str:
    """The measure that ranks where none is named; empty: all criteria together.

    Decisions are put in several ways (prompts, orders of the options) and texts compared by several numbers
    of roles. These setups have measures of their own, such as "correct/naive" and "win/roles k=2", which are
    never pooled; the first by name ranks.

    Args:
        kind: The name of the result in RunSample.
        measures: The measures that there are.
    """
    found = find_kind(kind)
    if found is None:
        return _ALL
    primary, secondary = found.results.primary_measure, found.results.secondary_measure
    known = set(measures)
    setups = sorted(measure for measure in known if found.results.is_primary(measure))
    if setups:
        return primary if primary in setups else setups[0]
    return secondary if secondary in known else primary


def scale_of(measure: str) -> tuple[float, float]:
    """The smallest and the largest value of a measure."""
    return SCALES.get(_base(measure), (0.0, 1.0))


def _base(measure: str) -> str:
    """The measure without the judge, bound or group that a name such as "rating/gpt" adds."""
    return measure.partition("/")[0].partition(" ")[0]


def _entry(model: str, by_measure: dict[str, ModelSums], measure: str) -> LeaderboardEntry:
    entry = LeaderboardEntry(model=model)
    for name, sums in by_measure.items():
        if name != _ALL and sums.judged:
            entry.means_by_measure[name] = sums.total / sums.judged
    ranked = by_measure.get(measure)
    if ranked is None:
        return entry
    mean = mean_of_sums(ranked, *scale_of(measure))
    if mean.value is not None:
        entry.mean = mean.value
    if mean.lower is not None and mean.upper is not None:
        entry.lower, entry.upper = mean.lower, mean.upper
    entry.judged_count, entry.judgement_count = ranked.judged, ranked.judgements
    entry.coverage = judged_share(ranked.judged, ranked.judgements, ranked.abstentions_by_reason)
    entry.sample_count = ranked.samples
    _set_bounds(entry, ranked, *scale_of(measure))
    entry.abstentions_by_reason.update(Counter(ranked.abstentions_by_reason))
    return entry


def _set_bounds(entry: LeaderboardEntry, sums: ModelSums, lowest: float, highest: float) -> None:
    """Sets the means with every abstention at an end of the scale."""
    abstained = sums.judgements - sums.judged
    if not sums.judgements:
        return
    entry.mean_lowest = (sums.total + abstained * lowest) / sums.judgements
    if not abstained:
        entry.mean_highest = entry.mean_lowest
    elif math.isfinite(highest):
        entry.mean_highest = (sums.total + abstained * highest) / sums.judgements


def _order(entry: LeaderboardEntry, sign: float) -> tuple[bool, float, str]:
    return not entry.HasField("mean"), sign * entry.mean, entry.model
