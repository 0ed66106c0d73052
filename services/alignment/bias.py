"""Biases of a pair judge: position, length, own model family, order consistency.

Judges of language models prefer a position, longer texts (Zheng et al. 2023), and texts of their own model
(Panickssery, Bowman and Feng 2024). The share of choices alone does not separate a preference from quality,
so the figure is the excess over the choices of people on the same pairs (Chen et al. 2025).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import scipy

from dramaturg.api.alignment.v1 import bias_pb2 as pb
from dramaturg.service.threads import Checkpoint
from services.alignment.bootstrap import Array, Resampling
from services.alignment.comparison import paired
from services.alignment.comparison.paired import gaffke
from services.alignment.errors import too_large
from services.alignment.estimates import Estimate, absent, clustered_proportion, proportion

MAX_GROUPS = 2000
"""The most groups of one answer."""

_ORDERS = 2
_NO_CHOICE = "there is no such choice"
_FIRST, _SECOND, _TIE = pb.PREFERENCE_FIRST, pb.PREFERENCE_SECOND, pb.PREFERENCE_TIE
_OF_NEITHER = pb.PREFERENCE_UNSPECIFIED
# The same text, shown in the other order.
_SWAPPED = {_FIRST: _SECOND, _SECOND: _FIRST, _TIE: _TIE}


def measure(
    pairs: Sequence[pb.JudgedPair], judge_family: str, group_tag: str, level: float, checkpoint: Checkpoint
) -> pb.MeasurePairBiasResponse:
    """Measures all judgements, then those of each group by name.

    Args:
        pairs: The judgements; those of one id are taken together in the intervals.
        judge_family: The family of the judge; empty: self-preference is not measured.
        group_tag: The tag whose values are the groups.
        level: The level of the intervals.
        checkpoint: Called between groups.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups.
    """
    groups: defaultdict[str, list[pb.JudgedPair]] = defaultdict(list)
    for one in pairs:
        if group := one.tags.get(group_tag, ""):
            groups[group].append(one)
    if len(groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(groups))
    found = pb.MeasurePairBiasResponse()
    for name, inside in [("", list(pairs)), *sorted(groups.items())]:
        checkpoint()
        # The bounds take a hundred times as long as the rest, and groups are many.
        bounds = None if name else Resampling(0, 0, level, checkpoint)
        found.groups.append(_measure(name, inside, judge_family, level, bounds))
    return found


def _measure(
    name: str, pairs: Sequence[pb.JudgedPair], judge_family: str, level: float, bounds: Resampling | None
) -> pb.PairBiasGroup:
    said = Counter(one.judged for one in pairs)

    def own(one: pb.JudgedPair) -> pb.Preference.ValueType:
        if not one.first.family or not one.second.family:
            return _OF_NEITHER
        return _single(one.first.family == judge_family, one.second.family == judge_family)

    position = _excess(pairs, lambda _: _FIRST, level, bounds)
    unnamed = absent("the judge's family is not named").of(len(pairs)).encode()
    chosen = [one for one in pairs if one.judged in (_FIRST, _SECOND)]
    return pb.PairBiasGroup(
        group=name,
        judgement_count=len(pairs),
        tie_count=said[_TIE],
        abstained_count=said[pb.PREFERENCE_UNSPECIFIED],
        first_share=position.judge_share,
        first_share_p=_half(chosen),
        length=_excess(pairs, _longer, level, bounds),
        own_family=_excess(pairs, own, level, bounds)
        if judge_family
        else pb.PreferenceExcess(judge_share=unnamed, human_share=unnamed, excess=unnamed),
        position=position,
        swaps=_swaps(pairs, level),
    )


def _longer(one: pb.JudgedPair) -> pb.Preference.ValueType:
    if not one.first.HasField("length") or not one.second.HasField("length"):
        return _OF_NEITHER
    return _single(one.first.length > one.second.length, one.second.length > one.first.length)


def _single(first: bool, second: bool) -> pb.Preference.ValueType:
    """The only text of a kind; unspecified if both or neither are."""
    if first == second:
        return _OF_NEITHER
    return _FIRST if first else _SECOND


def _excess(
    pairs: Sequence[pb.JudgedPair],
    kind: Callable[[pb.JudgedPair], pb.Preference.ValueType],
    level: float,
    bounds: Resampling | None,
) -> pb.PreferenceExcess:
    """How often the text of a kind is named, where a pair has one and there is a choice.

    Args:
        pairs: The judgements.
        kind: The text of the kind; unspecified: it has none.
        level: The level of the intervals.
        bounds: What the bounds of the excess are drawn with. None: it has none.
    """
    judge: list[tuple[pb.JudgedPair, float]] = []
    human: list[tuple[pb.JudgedPair, float]] = []
    both: list[tuple[pb.JudgedPair, float]] = []
    for one in pairs:
        wanted = kind(one)
        ours, theirs = (
            float(side == wanted) if wanted and side in (_FIRST, _SECOND) else None
            for side in (one.judged, one.human)
        )
        if ours is not None:
            judge.append((one, ours))
        if theirs is not None:
            human.append((one, theirs))
        if ours is not None and theirs is not None:
            both.append((one, ours - theirs))
    judge_share, human_share = (_share(values, level).of(len(pairs)).encode() for values in (judge, human))
    reason = "there is no choice of both judge and people"
    sums, sizes = _by_id(both)
    excess = paired.mean(sums, sizes, level, method=paired.CLUSTERED_T, undefined=reason).of(len(pairs))
    found = pb.PreferenceExcess(judge_share=judge_share, human_share=human_share, excess=excess.encode())
    if bounds is None or not both:
        return found
    # A pair that was not seen has as many judgements as the largest one: those without a choice count.
    counts = Counter(one.id for one in pairs if one.id and kind(one))
    largest, error = float(max(counts.values(), default=1)), (1 - level) / 2
    found.excess_lower_bound, found.excess_upper_bound = (
        sign * gaffke(sign * sums, sizes, largest, 1.0, bounds, error) for sign in (1.0, -1.0)
    )
    return found


def _share(values: Sequence[tuple[pb.JudgedPair, float]], level: float) -> Estimate:
    sums, sizes = _by_id(values)
    if sizes.size == sizes.sum():
        return proportion(int(sums.sum()), sizes.size, level, undefined=_NO_CHOICE)
    return clustered_proportion(sums, sizes, level, undefined=_NO_CHOICE)


def _half(chosen: Sequence[pb.JudgedPair]) -> float | None:
    """The two-sided p-value of the hypothesis that both positions are equally likely."""
    if not chosen:
        return None
    sums, sizes = _by_id([(one, 1.0 if one.judged == _FIRST else -1.0) for one in chosen])
    if sizes.size == len(chosen):
        return float(scipy.stats.binomtest(int((sums > 0).sum()), sizes.size).pvalue)
    excess = paired.mean(sums, sizes, 0.95, method="", undefined="")
    if excess.value is None or excess.standard_error is None:
        return None
    return float(2 * scipy.stats.t.sf(abs(excess.value) / excess.standard_error, sizes.size - 1))


def _by_id(values: Iterable[tuple[pb.JudgedPair, float]]) -> tuple[Array, Array]:
    """The sum and the number of the values of each id, sorted; those without one are groups of their own."""
    named: defaultdict[str, list[float]] = defaultdict(list)
    alone: list[list[float]] = []
    for one, value in values:
        if one.id:
            named[one.id].append(value)
        else:
            alone.append([value])
    parts = sorted((sum(part), len(part)) for part in [*named.values(), *alone])
    table = np.array(parts, np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _swaps(pairs: Sequence[pb.JudgedPair], level: float) -> pb.SwapConsistency:
    """Measures the ids with two judgements, one for each order."""
    by_id: defaultdict[str, list[pb.JudgedPair]] = defaultdict(list)
    for one in pairs:
        if one.id:
            by_id[one.id].append(one)
    said = [(both[0].judged, both[1].judged) for both in by_id.values() if len(both) == _ORDERS]
    answered = [(one, other) for one, other in said if one and other]
    consistent = sum(one == _SWAPPED[other] for one, other in answered)
    counts = Counter(answered)
    share = proportion(consistent, len(answered), level, undefined="no pair was answered in both orders")
    return pb.SwapConsistency(
        pair_count=len(said),
        consistent_share=share.of(len(said)).encode(),
        first_both_count=counts[_FIRST, _FIRST],
        second_both_count=counts[_SECOND, _SECOND],
        tie_once_count=sum((one == _TIE) != (other == _TIE) for one, other in answered),
    )
