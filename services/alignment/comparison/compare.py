"""Systems against a baseline, over all items and by group, under every policy; and the release gate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.bootstrap import Array, Index
from services.alignment.comparison import paired
from services.alignment.comparison.model import Compared, Design, Gate, PolicyComparison, RunComparison, Runs
from services.alignment.comparison.paired import fewest_clusters, minimum_detectable_effect
from services.alignment.correlation.measure import CorrelationDifference, Series, correlate
from services.alignment.errors import too_large
from services.alignment.estimates import (
    EQUAL,
    ONE_CLUSTER,
    Estimate,
    absent,
    benjamini_hochberg,
    clustered_proportion,
    holm,
    proportion,
)

_NO_ITEMS = "no item was answered by both"
_NO_RANGE = "an abstention has no score: the request names no lowest_score and highest_score"
_FEWEST_CLUSTERS = 2
NO_LOSS = (
    "nothing says how much an item may lose: "
    "the request names neither largest_task_loss nor lowest_score and highest_score"
)
"""The reason why a difference has no bound."""


@dataclass(frozen=True)
class PairedValues:
    """The values of the items that count under a policy, by cluster."""

    old: Array
    new: Array
    design: Design
    codes: Index
    """The index of each item's cluster."""
    sizes: Array
    """The number of items of each cluster."""
    largest: float
    """The most items of a cluster, those without a value under the policy included."""

    @classmethod
    def make(
        cls, runs: Runs, design: Design, both: NDArray[np.bool_], system: str, policy: AbstentionPolicy
    ) -> PairedValues | Estimate:
        """The values under a policy, or an undefined estimate with the reason why there are none.

        Args:
            runs: The values of all systems.
            design: The parameters.
            both: Marks the items on which both were run.
            system: The system.
            policy: What an abstention counts as.
        """
        new, old = runs.values[system][both], runs.values[design.baseline][both]
        if policy is not AbstentionPolicy.EXCLUDED and np.isnan(new).any() | np.isnan(old).any():
            # Wrong: both are the lowest. Worst case: the system's is the lowest, the baseline's the highest.
            worst = policy is AbstentionPolicy.WORST_CASE
            ends = design.lowest, design.highest if worst else design.lowest
            if ends[0] is None or ends[1] is None:
                return absent(_NO_RANGE)
            new, old = np.where(np.isnan(new), ends[0], new), np.where(np.isnan(old), ends[1], old)
        answered = ~(np.isnan(new) | np.isnan(old))
        clusters = runs.cluster[both]
        _, codes = np.unique(clusters[answered], return_inverse=True)
        sizes: Array = np.bincount(codes).astype(np.float64)
        largest = float(np.unique(clusters, return_counts=True)[1].max(initial=1))
        return cls(old[answered], new[answered], design, codes, sizes, largest)

    @property
    def _clustered(self) -> bool:
        # Clusters of one item each are items: then the exact test of verdicts holds.
        return self.design.clustered and self.sizes.size < self.codes.size

    @property
    def _single_verdicts(self) -> bool:
        return self.design.verdicts and not self._clustered

    def mean(self, values: Array, level: float) -> Estimate:
        sums = self._sums(values)
        if not self.design.verdicts:
            method = paired.CLUSTERED_T if self._clustered else paired.PAIRED_T
            method = method.removeprefix("paired-")
            return paired.mean(sums, self.sizes, level, method=method, undefined=_NO_ITEMS)
        if self._clustered:
            return clustered_proportion(sums, self.sizes, level, undefined=_NO_ITEMS)
        return proportion(int(values.sum()), values.size, level, undefined=_NO_ITEMS)

    def test(self) -> paired.TestResult | None:
        """The test that the mean difference is 0; ``None`` without items."""
        differences = self.new - self.old
        if not differences.size:
            return None
        if self.design.anytime:
            return self._at_all_looks(self._sums(differences))
        if self._single_verdicts:
            return paired.mcnemar(int((differences > 0).sum()), int((differences < 0).sum()))
        return paired.sign_flips(self._sums(differences), self.design.permutations, self.design.resampling)

    def _at_all_looks(self, sums: Array) -> paired.TestResult | None:
        """The capital of a gambler who bets half on either side, which is an e-value (Vovk and Wang 2021)."""
        span = self.design.span
        if span is None:
            return None
        sides = [paired.log_capital(side, self.sizes, self.largest, span, 0.0) for side in (sums, -sums)]
        return paired.TestResult(min(1.0, 2.0 * float(np.exp(-special.logsumexp(sides)))), paired.BETTING)

    def difference(self, level: float) -> Estimate:
        """The mean difference with its interval at a level.

        The interval rests on the differences that were seen: Bonett and Price's of single verdicts, Student's
        of all others. Where all clusters differ equally it is Gaffke's. With ``design.anytime`` it holds at
        all looks.
        """
        differences = self.new - self.old
        if not differences.size:
            return absent(_NO_ITEMS)
        sums, span = self._sums(differences), self.design.span
        if self.design.anytime:
            return self._bounded(sums, level)
        if self._single_verdicts:
            better, worse = int((differences > 0).sum()), int((differences < 0).sum())
            return paired.difference_of_shares(better, worse, differences.size, level)
        method = paired.CLUSTERED_T if self._clustered else paired.PAIRED_T
        found = paired.mean(sums, self.sizes, level, method=method, undefined=_NO_ITEMS)
        if found.withheld == EQUAL:
            return self._bounded(sums, level)
        if found.lower is None or found.upper is None or span is None:
            return found
        return replace(found, lower=max(found.lower, -span), upper=min(found.upper, span))

    def lower_bound(self, level: float) -> float | None:
        """The lower bound of the difference that the gate reads.

        It is one end of an interval at the level, so it is above the difference with a probability of at most
        ``(1 - level) / 2``. ``None``: nothing says how much may be lost.
        """
        loss = self.design.loss
        if loss is None or not self.sizes.size:
            return None
        return self._lower(self._sums(self.new - self.old), loss, level)

    def _bounded(self, sums: Array, level: float) -> Estimate:
        span, count = self.design.span, int(self.sizes.sum())
        value = float(sums.sum()) / count
        if span is None or self.sizes.size < _FEWEST_CLUSTERS:
            return Estimate(value, count, withheld=NO_LOSS if span is None else ONE_CLUSTER)
        lower, upper = self._lower(sums, span, level), -self._lower(-sums, span, level)
        error = (upper - lower) / (2 * float(special.ndtri(0.5 + level / 2)))
        return Estimate(value, count, lower, upper, interval_method=self.bound_method, standard_error=error)

    @property
    def bound_method(self) -> str:
        return paired.BETTING if self.design.anytime else paired.GAFFKE

    def _lower(self, sums: Array, loss: float, level: float) -> float:
        error = (1 - level) / 2
        if self.design.anytime:
            return paired.betting(
                sums, self.sizes, self.largest, loss, self.design.resampling.checkpoint, error
            )
        return paired.gaffke(sums, self.sizes, self.largest, loss, self.design.resampling, error)

    def _sums(self, values: Array) -> Array:
        sums: Array = np.bincount(self.codes, values, self.sizes.size).astype(np.float64)
        return sums


LowerBound = Callable[[RunComparison, AbstentionPolicy, float], float | None]
"""The lower bound of a comparison's difference under a policy at a level."""


def gate(part: PolicyComparison, margin: float, level: float) -> Gate:
    """Decides one comparison.

    GO claims non-inferiority: the lower bound is above minus the margin. The overall GO requires GO of every
    comparison, which needs no correction (Berger 1982, intersection-union tests). One NO-GO suffices for the
    overall NO-GO, so its p-values are adjusted. A difference whose interval lies within the margin is no
    NO-GO. Without an interval NO-GO requires a difference beyond the margin.
    """
    difference = part.difference
    if difference.value is None:
        return Gate.INCONCLUSIVE
    if part.lower_bound is not None and part.lower_bound >= -margin:
        return Gate.GO
    worse = difference.value < (0.0 if difference.lower is not None else -margin)
    significant = part.adjusted_p is not None and part.adjusted_p <= 1 - level
    return Gate.NO_GO if significant and worse and not go_if_seen(part, margin) else Gate.INCONCLUSIVE


def go_if_seen(part: PolicyComparison, margin: float) -> bool:
    """Whether the interval lies within the margin: GO if no cluster loses more than those that were seen."""
    lower = part.difference.lower
    return lower is not None and lower >= -margin


def together(gates: Iterable[Gate]) -> Gate:
    """NO-GO where one is, GO where all are and there is one, else inconclusive."""
    found = set(gates)
    if Gate.NO_GO in found:
        return Gate.NO_GO
    return Gate.GO if found == {Gate.GO} else Gate.INCONCLUSIVE


def adjusted(found: Sequence[RunComparison], design: Design) -> list[RunComparison]:
    """Adjusts the p-values of each policy and gates each comparison.

    The comparisons that the gate decides on are one family, the others another: what is not decided costs the
    decision no power.
    """
    policies = {place: list(one.policies) for place, one in enumerate(found)}
    for decided in (True, False):
        places = [place for place, one in enumerate(found) if one.decided is decided]
        for column in range(len(AbstentionPolicy)):
            ps = [policies[place][column].p for place in places]
            for place, step, rate in zip(places, holm(ps), benjamini_hochberg(ps), strict=True):
                part = policies[place][column]
                part = replace(part, adjusted_p=step, false_discovery_p=rate)
                decision = gate(part, design.margin, design.resampling.level)
                policies[place][column] = replace(part, gate=decision)
    return [replace(one, policies=policies[place]) for place, one in enumerate(found)]


def corrected(found: Sequence[RunComparison], design: Design, lower_bound: LowerBound) -> list[RunComparison]:
    """Corrects GO of the comparisons decided on for the number of systems (Holm 1979).

    A system is one hypothesis: if every group is decided, all its groups have to pass, without correction.
    """
    systems = {one.system for one in found if one.decided}
    by_policy = {
        policy: _passing(
            {system: [one for one in found if one.decided and one.system == system] for system in systems},
            policy,
            design,
            lower_bound,
        )
        for policy in AbstentionPolicy
    }

    def correct(one: RunComparison, part: PolicyComparison) -> Gate:
        if part.gate is Gate.GO and one.system not in by_policy[part.policy]:
            return Gate.INCONCLUSIVE
        return part.gate

    return [
        replace(one, policies=[replace(part, corrected_gate=correct(one, part)) for part in one.policies])
        if one.decided
        else one
        for one in found
    ]


def _passing(
    systems: dict[str, list[RunComparison]], policy: AbstentionPolicy, design: Design, lower_bound: LowerBound
) -> set[str]:
    """The systems that stay GO: step down, each step at the error rate over the number of those left."""
    open_ = {
        system
        for system, comparisons in systems.items()
        if all(one.under(policy).gate is Gate.GO for one in comparisons)
    }
    passed: set[str] = set()
    while remaining := open_ - passed:
        divisor = len(systems) - len(passed)
        if divisor == 1:
            return passed | remaining
        level = 1 - (1 - design.resampling.level) / divisor
        bounds = {
            system: [lower_bound(one, policy, level) for one in systems[system]] for system in remaining
        }
        new = {
            system
            for system, ends in bounds.items()
            if all(end is not None and end >= -design.margin for end in ends)
        }
        if not new:
            break
        passed |= new
    return passed


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
