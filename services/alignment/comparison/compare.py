"""Systems against a baseline, over all items and by group, under every policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.comparison.bounded import fewest_clusters
from services.alignment.comparison.decision import adjusted, corrected, go_if_seen, together
from services.alignment.comparison.difference import NO_LOSS, PairedValues
from services.alignment.comparison.model import Compared, Design, Gate, PolicyComparison, RunComparison, Runs
from services.alignment.comparison.paired import minimum_detectable_effect
from services.alignment.correlation.measure import CorrelationDifference, Series, correlate
from services.alignment.errors import too_large
from services.alignment.estimates import Estimate

MAX_GROUPS = 2000
"""The most groups of one answer."""
MAX_COMPARISONS = 10_000
"""The most comparisons of one answer: groups x systems."""


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
    every_group = design.every_group and bool(runs.groups)
    found = [
        replace(_compare_one(runs, design, group, system), decided=(group >= 0) == every_group)
        for group in range(-1, len(runs.groups))
        for system in systems
    ]

    def lower_bound(one: RunComparison, policy: AbstentionPolicy, level: float) -> float | None:
        group = runs.groups.index(one.group) if one.group else -1
        pairs = PairedValues.make(runs, design, _both(runs, design, group, one.system), one.system, policy)
        return pairs.lower_bound(level) if isinstance(pairs, PairedValues) else None

    found = corrected(adjusted(found, design), design, lower_bound)
    decided = [one for one in found if one.decided]
    parts = [one.under(design.policy) for one in decided]
    reasons = [_reason(one, part, design) for one, part in zip(decided, parts, strict=True)]
    return Compared(found, together(part.gate for part in parts), reasons)


Mask = NDArray[np.bool_]


def _both(runs: Runs, design: Design, group: int, system: str) -> Mask:
    both: Mask = runs.ran[system] & runs.ran[design.baseline]
    return both & (runs.group == group) if group >= 0 else both


def _compare_one(runs: Runs, design: Design, group: int, system: str) -> RunComparison:
    design.resampling.checkpoint()
    both = _both(runs, design, group, system)
    policies = list(_policies(runs, design, both, system))
    either = (runs.ran[system] | runs.ran[design.baseline]) & ((runs.group == group) | (group < 0))
    return RunComparison(
        group=runs.groups[group] if group >= 0 else "",
        system=system,
        items=int(both.sum()),
        unpaired=int((either & ~both).sum()),
        clusters=np.unique(runs.cluster[both]).size if design.clustered else 0,
        baseline_abstained=int(np.isnan(runs.values[design.baseline][both]).sum()),
        abstained=int(np.isnan(runs.values[system][both]).sum()),
        policies=policies,
        correlation=_correlation(runs, design, both, system),
    )


def _policies(runs: Runs, design: Design, both: Mask, system: str) -> Iterator[PolicyComparison]:
    """The comparison under each policy; without abstentions they are one."""
    first, *others = AbstentionPolicy
    found = _under_policy(first, runs, design, both, system)
    yield found
    answered = not any(np.isnan(runs.values[name][both]).any() for name in (design.baseline, system))
    for policy in others:
        same = replace(found, policy=policy)
        yield same if answered else _under_policy(policy, runs, design, both, system)


def _under_policy(
    policy: AbstentionPolicy, runs: Runs, design: Design, both: Mask, system: str
) -> PolicyComparison:
    pairs, total = PairedValues.make(runs, design, both, system, policy), int(both.sum())
    if not isinstance(pairs, PairedValues):
        nothing = pairs.of(total)
        return PolicyComparison(policy, nothing, nothing, nothing)
    level = design.resampling.level
    difference, tested = pairs.difference(level), pairs.test()
    return PolicyComparison(
        policy=policy,
        baseline_mean=_on_scale(pairs.mean(pairs.old, level), design).of(total),
        system_mean=_on_scale(pairs.mean(pairs.new, level), design).of(total),
        difference=difference.of(total),
        better=int((pairs.new > pairs.old).sum()),
        worse=int((pairs.new < pairs.old).sum()),
        p=tested.p if tested else None,
        test=tested.test if tested else "",
        minimum_detectable_effect=minimum_detectable_effect(difference.standard_error, level, design.power),
        lower_bound=pairs.lower_bound(level),
        lower_bound_method=pairs.bound_method if design.loss is not None else "",
    )


def _on_scale(mean: Estimate, design: Design) -> Estimate:
    """A mean whose interval is cut at the ends of the scale, beyond which no mean lies."""
    lower, upper = mean.lower, mean.upper
    if lower is not None and design.lowest is not None:
        lower = max(lower, design.lowest)
    if upper is not None and design.highest is not None:
        upper = min(upper, design.highest)
    return replace(mean, lower=lower, upper=upper)


def _correlation(runs: Runs, design: Design, both: Mask, system: str) -> CorrelationDifference | None:
    scored = both & ~np.isnan(runs.human)
    if not scored.any():
        return None
    columns = {name: runs.values[name][scored] for name in (design.baseline, system)}
    answered = ~np.isnan(columns[system]) & ~np.isnan(columns[design.baseline])
    items = np.flatnonzero(answered)
    measures = {name: Series(items, column[answered]) for name, column in columns.items()}
    (difference,) = correlate(runs.human[scored], measures, design.resampling).differences
    return difference


def _reason(one: RunComparison, part: PolicyComparison, design: Design) -> str:
    where = f" in {one.group}" if one.group else ""
    found = [f"{one.system} against {design.baseline}{where}: {part.gate.value}"]
    difference, margin = part.difference, design.margin
    if difference.value is None:
        return f"{found[0]}; {difference.undefined}"
    shown = f"the difference is {difference.value:.4g}"
    if difference.lower is not None and difference.upper is not None:
        shown += f" [{difference.lower:.4g}, {difference.upper:.4g}]"
    unit = "cluster" if one.clusters else "item"
    if part.lower_bound is None or design.loss is None:
        found += [shown, NO_LOSS]
    else:
        loss = f"where one {unit} may lose {design.loss:.4g}"
        found += [f"{shown}, its lower bound {part.lower_bound:.4g} {loss}, the margin {margin:.4g}"]
        if part.gate is not Gate.GO:
            if go_if_seen(part, margin):
                found.append(f"GO unless whole {unit}s are lost")
            units, level = one.clusters or one.items, design.resampling.level
            fewest = fewest_clusters(margin, design.loss, (1 - level) / 2)
            if fewest is None or units < fewest:
                found.append(f"GO needs {f'at least {fewest} {unit}s' if fewest else 'a margin above 0'}")
    others = [
        f"{other.policy.value} {other.gate.value}" for other in one.policies if other.gate is not part.gate
    ]
    if others:
        found.append(
            f"by what an abstention counts as: {part.policy.value} {part.gate.value}, {', '.join(others)}"
        )
    return "; ".join(found)
