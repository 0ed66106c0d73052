"""The release gate: one comparison, all of them, and corrections for their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.comparison.model import Design, Gate, PolicyComparison, RunComparison
from services.alignment.multiplicity import benjamini_hochberg, holm

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
