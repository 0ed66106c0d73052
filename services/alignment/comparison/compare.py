"""Systems against a baseline, over all items and by group, under every policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.bootstrap import Array, Index
from services.alignment.comparison import paired
from services.alignment.comparison.model import (
    Compared,
    Design,
    PolicyComparison,
    RunComparison,
    Runs,
    gate,
    together,
)
from services.alignment.correlation.measure import CorrelationDifference, Series, correlate
from services.alignment.errors import too_large
from services.alignment.estimates import Estimate, absent, clustered_proportion, proportion

MAX_GROUPS = 2000
"""The most groups of one answer."""
MAX_COMPARISONS = 10_000
"""The most comparisons of one answer: groups x systems."""

_NO_ITEMS = "no item was answered by both"
_NO_RANGE = "an abstention has no score: the request names no lowest_score and highest_score"


def compare(runs: Runs, design: Design) -> Compared:
    """Compares every system with the baseline.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups or comparisons.
    """
    if len(runs.groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(runs.groups))
    systems = sorted(set(runs.values) - {design.baseline})
    if (count := len(systems) * (1 + len(runs.groups))) > MAX_COMPARISONS:
        raise too_large("comparisons", limit=MAX_COMPARISONS, actual=count)
    found = [
        _compare_one(runs, design, group, system)
        for group in range(-1, len(runs.groups))
        for system in systems
    ]
    decided = _decide(found, design)
    gated = [one for one in decided if bool(one.group) == (design.every_group and bool(runs.groups))]
    by_policy = [next(part for part in one.policies if part.policy is design.policy) for one in gated]
    reasons = [_reason(one, part, design) for one, part in zip(gated, by_policy, strict=True)]
    return Compared(decided, together(part.gate for part in by_policy), reasons)


def _compare_one(runs: Runs, design: Design, group: int, system: str) -> RunComparison:
    design.resampling.checkpoint()
    inside = runs.group == group if group >= 0 else np.ones(runs.group.size, np.bool_)
    ours, theirs = runs.ran[system] & inside, runs.ran[design.baseline] & inside
    both = ours & theirs
    new, old = runs.values[system][both], runs.values[design.baseline][both]
    return RunComparison(
        group=runs.groups[group] if group >= 0 else "",
        system=system,
        items=int(both.sum()),
        unpaired=int((ours ^ theirs).sum()),
        clusters=np.unique(runs.cluster[both]).size if design.clustered else 0,
        baseline_abstained=int(np.isnan(old).sum()),
        abstained=int(np.isnan(new).sum()),
        policies=[_under_policy(policy, new, old, runs.cluster[both], design) for policy in AbstentionPolicy],
        correlation=_correlation(runs, design, both, system),
    )


def _under_policy(
    policy: AbstentionPolicy, new: Array, old: Array, cluster: Index, design: Design
) -> PolicyComparison:
    total = new.size
    if policy is not AbstentionPolicy.EXCLUDED and np.isnan(new).any() | np.isnan(old).any():
        # Wrong: both count as nothing. Worst case: the system's as nothing, the baseline's as the best.
        ends = design.lowest, design.highest if policy is AbstentionPolicy.WORST_CASE else design.lowest
        if ends[0] is None or ends[1] is None:
            nothing = absent(_NO_RANGE, total)
            return PolicyComparison(policy, nothing, nothing, nothing)
        new, old = np.where(np.isnan(new), ends[0], new), np.where(np.isnan(old), ends[1], old)
    answered = ~(np.isnan(new) | np.isnan(old))
    new, old = new[answered], old[answered]
    clusters = _Clusters(cluster[answered], design)
    difference, tested = clusters.difference(new - old)
    return PolicyComparison(
        policy=policy,
        baseline_mean=clusters.mean(old).of(total),
        system_mean=clusters.mean(new).of(total),
        difference=difference.of(total),
        better=int((new > old).sum()),
        worse=int((new < old).sum()),
        p=tested.p if tested else None,
        test=tested.test if tested else "",
        minimum_detectable_effect=paired.minimum_detectable_effect(
            difference.standard_error, design.resampling.level, design.power
        ),
    )


class _Clusters:
    """Items grouped by cluster."""

    def __init__(self, cluster: Index, design: Design) -> None:
        _, self._codes = np.unique(cluster, return_inverse=True)
        self._design = design
        self._sizes: Array = np.bincount(self._codes).astype(np.float64)
        # Clusters of one item each are items: then the exact test of verdicts holds.
        self._clustered = design.clustered and self._sizes.size < self._codes.size

    def mean(self, values: Array) -> Estimate:
        level = self._design.resampling.level
        sums = self._sums(values)
        if not self._design.verdicts:
            method = paired.CLUSTERED_T if self._clustered else paired.PAIRED_T
            method = method.removeprefix("paired-")
            return paired.mean(sums, self._sizes, level, method=method, undefined=_NO_ITEMS)
        if self._clustered:
            return clustered_proportion(sums, self._sizes, level, undefined=_NO_ITEMS)
        return proportion(int(values.sum()), values.size, level, undefined=_NO_ITEMS)

    def difference(self, differences: Array) -> tuple[Estimate, paired.TestResult | None]:
        """The mean difference and the test that it is 0."""
        design, level = self._design, self._design.resampling.level
        if not differences.size:
            return absent(_NO_ITEMS), None
        sums = self._sums(differences)
        if design.verdicts and not self._clustered:
            better, worse = int((differences > 0).sum()), int((differences < 0).sum())
            shares = paired.difference_of_shares(better, worse, differences.size, level)
            return shares, paired.mcnemar(better, worse)
        tested = paired.sign_flips(sums, design.permutations, design.resampling)
        if design.verdicts and not differences.any():
            # Verdicts that never differ have no spread; their clusters are as good as items that never do.
            shares = paired.difference_of_shares(0, 0, sums.size, level)
            return replace(shares, count=differences.size), tested
        method = paired.CLUSTERED_T if self._clustered else paired.PAIRED_T
        found = paired.mean(sums, self._sizes, level, method=method, undefined=_NO_ITEMS)
        span = design.span
        if found.value is not None and found.lower is None and span is not None and self._sizes.size > 1:
            found = paired.equal_differences(found.value, self._sizes, span, level)
        return found, tested

    def _sums(self, values: Array) -> Array:
        sums: Array = np.bincount(self._codes, values, self._sizes.size).astype(np.float64)
        return sums


def _correlation(
    runs: Runs, design: Design, both: np.ndarray[tuple[int], np.dtype[np.bool_]], system: str
) -> CorrelationDifference | None:
    scored = both & ~np.isnan(runs.human)
    if not scored.any():
        return None
    columns = {name: runs.values[name][scored] for name in (design.baseline, system)}
    answered = ~np.isnan(columns[system]) & ~np.isnan(columns[design.baseline])
    items = np.flatnonzero(answered)
    measures = {name: Series(items, column[answered]) for name, column in columns.items()}
    (difference,) = correlate(runs.human[scored], measures, design.resampling).differences
    return difference


def _decide(found: Sequence[RunComparison], design: Design) -> list[RunComparison]:
    """Adjusts the p-values of each policy for all comparisons, and decides each."""
    columns: list[Sequence[PolicyComparison]] = []
    for place in range(len(AbstentionPolicy)):
        parts = [one.policies[place] for one in found]
        columns.append(list(_decided(parts, design)))
    rows = zip(*columns, strict=True)
    return [replace(one, policies=list(row)) for one, row in zip(found, rows, strict=True)]


def _decided(parts: Sequence[PolicyComparison], design: Design) -> Iterator[PolicyComparison]:
    for part, adjusted in zip(parts, paired.holm([part.p for part in parts]), strict=True):
        said = gate(part.difference, adjusted, design.margin, design.resampling.level)
        yield replace(part, adjusted_p=adjusted, gate=said)


def _reason(one: RunComparison, part: PolicyComparison, design: Design) -> str:
    where = f" in {one.group}" if one.group else ""
    subject = f"{one.system} against {design.baseline}{where}: {part.gate.value}"
    difference = part.difference
    if difference.value is None:
        return f"{subject}; {difference.undefined}"
    if difference.lower is None or difference.upper is None:
        return f"{subject}; the difference is {difference.value:.4g}, and its variance is unknown"
    interval = f"{difference.value:.4g} [{difference.lower:.4g}, {difference.upper:.4g}]"
    return f"{subject}; the difference is {interval}, the margin {design.margin:.4g}"
