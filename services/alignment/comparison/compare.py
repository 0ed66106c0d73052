"""Systems against a baseline, over all items and by group, under every policy; and the release gate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dramaturg.api.alignment.v1 import accuracy_pb2, correlation_pb2
from dramaturg.api.alignment.v1 import compare_pb2 as pb
from services.alignment.accuracy.confusion import POLICIES
from services.alignment.bootstrap import Array, Index
from services.alignment.comparison import paired
from services.alignment.comparison.model import Design, Runs
from services.alignment.comparison.paired import fewest_clusters, minimum_detectable_effect
from services.alignment.correlation.measure import Series, correlate
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
_SAID = {pb.GATE_GO: "go", pb.GATE_NO_GO: "no-go", pb.GATE_INCONCLUSIVE: "inconclusive"}
_COUNTS_AS = dict(zip(POLICIES, ("left out", "a wrong answer", "the worst possible answer"), strict=True))
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
        cls,
        runs: Runs,
        design: Design,
        both: NDArray[np.bool_],
        system: str,
        policy: accuracy_pb2.AbstentionPolicy.ValueType,
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
        if policy != accuracy_pb2.ABSTENTION_POLICY_EXCLUDED and np.isnan(new).any() | np.isnan(old).any():
            # Wrong: both are the lowest. Worst case: the system's is the lowest, the baseline's the highest.
            worst = policy == accuracy_pb2.ABSTENTION_POLICY_WORST_CASE
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


LowerBound = Callable[[pb.RunComparison, accuracy_pb2.AbstentionPolicy.ValueType, float], float | None]
"""The lower bound of a comparison's difference under a policy at a level."""


def gate(part: pb.PolicyComparison, margin: float, level: float) -> pb.Gate.ValueType:
    """Decides one comparison.

    GO claims non-inferiority: the lower bound is above minus the margin. The overall GO requires GO of every
    comparison, which needs no correction (Berger 1982, intersection-union tests). One NO-GO suffices for the
    overall NO-GO, so its p-values are adjusted. A difference whose interval lies within the margin is no
    NO-GO. Without an interval NO-GO requires a difference beyond the margin.
    """
    difference = part.difference
    if not difference.HasField("value"):
        return pb.GATE_INCONCLUSIVE
    if part.HasField("lower_bound") and part.lower_bound >= -margin:
        return pb.GATE_GO
    worse = difference.value < (0.0 if difference.HasField("lower") else -margin)
    significant = part.HasField("adjusted_p_value") and part.adjusted_p_value <= 1 - level
    return pb.GATE_NO_GO if significant and worse and not go_if_seen(part, margin) else pb.GATE_INCONCLUSIVE


def go_if_seen(part: pb.PolicyComparison, margin: float) -> bool:
    """Whether the interval lies within the margin: GO if no cluster loses more than those that were seen."""
    return part.difference.HasField("lower") and part.difference.lower >= -margin


def together(gates: Iterable[pb.Gate.ValueType]) -> pb.Gate.ValueType:
    """NO-GO where one is, GO where all are and there is one, else inconclusive."""
    found = set(gates)
    if pb.GATE_NO_GO in found:
        return pb.GATE_NO_GO
    return pb.GATE_GO if found == {pb.GATE_GO} else pb.GATE_INCONCLUSIVE


def _under(one: pb.RunComparison, policy: accuracy_pb2.AbstentionPolicy.ValueType) -> pb.PolicyComparison:
    return next(part for part in one.policies if part.policy == policy)


def _adjust(found: Sequence[pb.RunComparison], design: Design) -> None:
    """Adjusts the p-values of each policy and gates each comparison.

    The comparisons that the gate decides on are one family, the others another: what is not decided costs the
    decision no power.
    """
    for decided, policy in product((True, False), POLICIES):
        parts = [_under(one, policy) for one in found if one.decided is decided]
        ps = [part.p_value if part.HasField("p_value") else None for part in parts]
        for part, step, rate in zip(parts, holm(ps), benjamini_hochberg(ps), strict=True):
            part.MergeFrom(pb.PolicyComparison(adjusted_p_value=step, false_discovery_p_value=rate))
            part.gate = gate(part, design.margin, design.resampling.level)


def _correct(found: Sequence[pb.RunComparison], design: Design, lower_bound: LowerBound) -> None:
    """Corrects GO of the comparisons decided on for the number of systems (Holm 1979).

    A system is one hypothesis: if every group is decided, all its groups have to pass, without correction.
    """
    systems: defaultdict[str, list[pb.RunComparison]] = defaultdict(list)
    for one in found:
        if one.decided:
            systems[one.system].append(one)
    for policy in POLICIES:
        passing = _passing(systems, policy, design, lower_bound)
        for system, comparisons in systems.items():
            for part in (_under(one, policy) for one in comparisons):
                lost = part.gate == pb.GATE_GO and system not in passing
                part.corrected_gate = pb.GATE_INCONCLUSIVE if lost else part.gate


def _passing(
    systems: Mapping[str, Sequence[pb.RunComparison]],
    policy: accuracy_pb2.AbstentionPolicy.ValueType,
    design: Design,
    lower_bound: LowerBound,
) -> set[str]:
    """The systems that stay GO: step down, each step at the error rate over the number of those left."""
    open_ = {
        system
        for system, comparisons in systems.items()
        if all(_under(one, policy).gate == pb.GATE_GO for one in comparisons)
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


def compare(runs: Runs, design: Design) -> pb.CompareRunsResponse:
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
        _compare_one(runs, design, group, system, decided=(group >= 0) == every_group)
        for group in range(-1, len(runs.groups))
        for system in systems
    ]

    def lower_bound(
        one: pb.RunComparison, policy: accuracy_pb2.AbstentionPolicy.ValueType, level: float
    ) -> float | None:
        group = runs.groups.index(one.group) if one.group else -1
        pairs = PairedValues.make(runs, design, _both(runs, design, group, one.system), one.system, policy)
        return pairs.lower_bound(level) if isinstance(pairs, PairedValues) else None

    _adjust(found, design)
    _correct(found, design, lower_bound)
    decided = [one for one in found if one.decided]
    return pb.CompareRunsResponse(
        comparisons=found,
        gate=together(_under(one, design.policy).gate for one in decided),
        gate_reasons=[_reason(one, design) for one in decided],
        abstention_policy=design.policy,
        largest_task_loss=design.loss,
    )


Mask = NDArray[np.bool_]


def _both(runs: Runs, design: Design, group: int, system: str) -> Mask:
    both: Mask = runs.ran[system] & runs.ran[design.baseline]
    return both & (runs.group == group) if group >= 0 else both


def _compare_one(runs: Runs, design: Design, group: int, system: str, *, decided: bool) -> pb.RunComparison:
    design.resampling.checkpoint()
    both = _both(runs, design, group, system)
    either = (runs.ran[system] | runs.ran[design.baseline]) & ((runs.group == group) | (group < 0))
    return pb.RunComparison(
        group=runs.groups[group] if group >= 0 else "",
        system=system,
        item_count=int(both.sum()),
        unpaired_count=int((either & ~both).sum()),
        cluster_count=np.unique(runs.cluster[both]).size if design.clustered else 0,
        baseline_abstained_count=int(np.isnan(runs.values[design.baseline][both]).sum()),
        abstained_count=int(np.isnan(runs.values[system][both]).sum()),
        policies=_policies(runs, design, both, system),
        correlation=_correlation(runs, design, both, system),
        decided=decided,
    )


def _policies(runs: Runs, design: Design, both: Mask, system: str) -> Iterator[pb.PolicyComparison]:
    """The comparison under each policy; without abstentions they are one."""
    first, *others = POLICIES
    found = _under_policy(first, runs, design, both, system)
    yield found
    answered = not any(np.isnan(runs.values[name][both]).any() for name in (design.baseline, system))
    for policy in others:
        part = deepcopy(found) if answered else _under_policy(policy, runs, design, both, system)
        part.policy = policy
        yield part


def _under_policy(
    policy: accuracy_pb2.AbstentionPolicy.ValueType, runs: Runs, design: Design, both: Mask, system: str
) -> pb.PolicyComparison:
    pairs, total = PairedValues.make(runs, design, both, system, policy), int(both.sum())
    if not isinstance(pairs, PairedValues):
        nothing = pairs.of(total).encode()
        return pb.PolicyComparison(
            policy=policy, baseline_mean=nothing, system_mean=nothing, difference=nothing
        )
    level = design.resampling.level
    difference, tested = pairs.difference(level), pairs.test()
    return pb.PolicyComparison(
        policy=policy,
        baseline_mean=_on_scale(pairs.mean(pairs.old, level), design).of(total).encode(),
        system_mean=_on_scale(pairs.mean(pairs.new, level), design).of(total).encode(),
        difference=difference.of(total).encode(),
        better_count=int((pairs.new > pairs.old).sum()),
        worse_count=int((pairs.new < pairs.old).sum()),
        p_value=tested.p if tested else None,
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


def _correlation(
    runs: Runs, design: Design, both: Mask, system: str
) -> correlation_pb2.CorrelationDifference | None:
    scored = both & ~np.isnan(runs.human)
    if not scored.any():
        return None
    columns = {name: runs.values[name][scored] for name in (design.baseline, system)}
    answered = ~np.isnan(columns[system]) & ~np.isnan(columns[design.baseline])
    items = np.flatnonzero(answered)
    measures = {name: Series(items, column[answered]) for name, column in columns.items()}
    (difference,) = correlate(runs.human[scored], measures, design.resampling).differences
    return difference


def _reason(one: pb.RunComparison, design: Design) -> str:
    part = _under(one, design.policy)
    where = f" in {one.group}" if one.group else ""
    found = [f"{one.system} against {design.baseline}{where}: {_SAID[part.gate]}"]
    difference, margin = part.difference, design.margin
    if not difference.HasField("value"):
        return f"{found[0]}; {difference.undefined}"
    shown = f"the difference is {difference.value:.4g}"
    if difference.HasField("lower") and difference.HasField("upper"):
        shown += f" [{difference.lower:.4g}, {difference.upper:.4g}]"
    unit = "cluster" if one.cluster_count else "item"
    if not part.HasField("lower_bound") or design.loss is None:
        found += [shown, NO_LOSS]
    else:
        loss = f"where one {unit} may lose {design.loss:.4g}"
        found += [f"{shown}, its lower bound {part.lower_bound:.4g} {loss}, the margin {margin:.4g}"]
        if part.gate != pb.GATE_GO:
            if go_if_seen(part, margin):
                found.append(f"GO unless whole {unit}s are lost")
            units, level = one.cluster_count or one.item_count, design.resampling.level
            fewest = fewest_clusters(margin, design.loss, (1 - level) / 2)
            if fewest is None or units < fewest:
                found.append(f"GO needs {f'at least {fewest} {unit}s' if fewest else 'a margin above 0'}")
    others = [
        f"{_COUNTS_AS[other.policy]} {_SAID[other.gate]}" for other in one.policies if other.gate != part.gate
    ]
    if others:
        found.append(
            f"by what an abstention counts as: {_COUNTS_AS[part.policy]} {_SAID[part.gate]}, "
            f"{', '.join(others)}"
        )
    return "; ".join(found)
