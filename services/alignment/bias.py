"""Biases of a pair judge: position, length, own model family, order consistency.

Judges of language models prefer a position, longer texts (Zheng et al. 2023), and texts of their own model
(Panickssery, Bowman and Feng 2024). The share of choices alone does not separate a preference from quality,
so the figure is the excess over the choices of people on the same pairs (Chen et al. 2025).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import scipy

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


class Side(Enum):
    """A text of a pair, by the order shown."""

    FIRST = "first"
    SECOND = "second"
    TIE = "tie"

    @property
    def other(self) -> Side:
        """The same text, shown in the other order."""
        return {Side.FIRST: Side.SECOND, Side.SECOND: Side.FIRST}.get(self, Side.TIE)


@dataclass(frozen=True)
class Text:
    """The attributes of a text."""

    system: str
    family: str
    length: float | None


@dataclass(frozen=True)
class JudgedPair:
    """A judged pair, in the order shown."""

    id: str
    first: Text
    second: Text
    judged: Side | None
    """``None``: the judge abstained."""
    human: Side | None
    """``None``: people were not asked."""
    group: str


@dataclass(frozen=True)
class PreferenceExcess:
    """How often choices name one kind of text; see ``PreferenceExcess`` in the contract."""

    judge_share: Estimate
    human_share: Estimate
    excess: Estimate
    lower_bound: float | None = None
    upper_bound: float | None = None


@dataclass(frozen=True)
class SwapConsistency:
    """What is said of pairs in both orders; see ``SwapConsistency`` in the contract."""

    pairs: int
    consistent_share: Estimate
    first_both: int
    second_both: int
    tie_once: int


@dataclass(frozen=True)
class PairBias:
    """The metrics of one group; see ``PairBiasGroup`` in the contract."""

    group: str
    judgements: int
    ties: int
    abstained: int
    first_share: Estimate
    first_share_p: float | None
    length: PreferenceExcess
    own_family: PreferenceExcess
    position: PreferenceExcess
    swaps: SwapConsistency


def measure(
    pairs: Sequence[JudgedPair], judge_family: str, level: float, checkpoint: Checkpoint
) -> list[PairBias]:
    """Measures all judgements, then those of each group by name.

    Args:
        pairs: The judgements; those of one id are taken together in the intervals.
        judge_family: The family of the judge; empty: self-preference is not measured.
        level: The level of the intervals.
        checkpoint: Called between groups.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups.
    """
    groups: defaultdict[str, list[JudgedPair]] = defaultdict(list)
    for one in pairs:
        if one.group:
            groups[one.group].append(one)
    if len(groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(groups))
    found = []
    for name, inside in [("", list(pairs)), *sorted(groups.items())]:
        checkpoint()
        # The bounds take a hundred times as long as the rest, and groups are many.
        bounds = None if name else Resampling(0, 0, level, checkpoint)
        found.append(_measure(name, inside, judge_family, level, bounds))
    return found


def _measure(
    name: str, pairs: Sequence[JudgedPair], judge_family: str, level: float, bounds: Resampling | None
) -> PairBias:
    said = Counter(one.judged for one in pairs)

    def own(one: JudgedPair) -> Side | None:
        if not one.first.family or not one.second.family:
            return None
        return _single(one.first.family == judge_family, one.second.family == judge_family)

    position = _excess(pairs, lambda _: Side.FIRST, level, bounds)
    unnamed = absent("the judge's family is not named").of(len(pairs))
    chosen = [one for one in pairs if one.judged in (Side.FIRST, Side.SECOND)]
    return PairBias(
        group=name,
        judgements=len(pairs),
        ties=said[Side.TIE],
        abstained=said[None],
        first_share=position.judge_share,
        first_share_p=_half(chosen),
        length=_excess(pairs, _longer, level, bounds),
        own_family=_excess(pairs, own, level, bounds)
        if judge_family
        else PreferenceExcess(unnamed, unnamed, unnamed),
        position=position,
        swaps=_swaps(pairs, level),
    )


def _longer(one: JudgedPair) -> Side | None:
    if one.first.length is None or one.second.length is None:
        return None
    return _single(one.first.length > one.second.length, one.second.length > one.first.length)


def _single(first: bool, second: bool) -> Side | None:
    """The only text of a kind; ``None`` if both or neither are."""
    if first == second:
        return None
    return Side.FIRST if first else Side.SECOND


def _excess(
    pairs: Sequence[JudgedPair],
    kind: Callable[[JudgedPair], Side | None],
    level: float,
    bounds: Resampling | None,
) -> PreferenceExcess:
    """How often the text of a kind is named, where a pair has one and there is a choice.

    Args:
        pairs: The judgements.
        kind: The text of the kind.
        level: The level of the intervals.
        bounds: What the bounds of the excess are drawn with. None: it has none.
    """
    judge: list[tuple[JudgedPair, float]] = []
    human: list[tuple[JudgedPair, float]] = []
    both: list[tuple[JudgedPair, float]] = []
    for one in pairs:
        wanted = kind(one)
        ours, theirs = (
            float(side is wanted) if wanted and side in (Side.FIRST, Side.SECOND) else None
            for side in (one.judged, one.human)
        )
        if ours is not None:
            judge.append((one, ours))
        if theirs is not None:
            human.append((one, theirs))
        if ours is not None and theirs is not None:
            both.append((one, ours - theirs))
    judge_share, human_share = (_share(values, level).of(len(pairs)) for values in (judge, human))
    reason = "there is no choice of both judge and people"
    sums, sizes = _by_id(both)
    excess = paired.mean(sums, sizes, level, method=paired.CLUSTERED_T, undefined=reason).of(len(pairs))
    if bounds is None or not both:
        return PreferenceExcess(judge_share, human_share, excess)
    # A pair that was not seen has as many judgements as the largest one: those without a choice count.
    counts = Counter(one.id for one in pairs if one.id and kind(one))
    largest, error = float(max(counts.values(), default=1)), (1 - level) / 2
    lower, upper = (sign * gaffke(sign * sums, sizes, largest, 1.0, bounds, error) for sign in (1.0, -1.0))
    return PreferenceExcess(judge_share, human_share, excess, lower, upper)


def _share(values: Sequence[tuple[JudgedPair, float]], level: float) -> Estimate:
    sums, sizes = _by_id(values)
    if sizes.size == sizes.sum():
        return proportion(int(sums.sum()), sizes.size, level, undefined=_NO_CHOICE)
    return clustered_proportion(sums, sizes, level, undefined=_NO_CHOICE)


def _half(chosen: Sequence[JudgedPair]) -> float | None:
    """The two-sided p-value of the hypothesis that both positions are equally likely."""
    if not chosen:
        return None
    sums, sizes = _by_id([(one, 1.0 if one.judged is Side.FIRST else -1.0) for one in chosen])
    if sizes.size == len(chosen):
        return float(scipy.stats.binomtest(int((sums > 0).sum()), sizes.size).pvalue)
    excess = paired.mean(sums, sizes, 0.95, method="", undefined="")
    if excess.value is None or excess.standard_error is None:
        return None
    return float(2 * scipy.stats.t.sf(abs(excess.value) / excess.standard_error, sizes.size - 1))


def _by_id(values: Iterable[tuple[JudgedPair, float]]) -> tuple[Array, Array]:
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


def _swaps(pairs: Sequence[JudgedPair], level: float) -> SwapConsistency:
    """Measures the ids with two judgements, one for each order."""
    by_id: defaultdict[str, list[JudgedPair]] = defaultdict(list)
    for one in pairs:
        if one.id:
            by_id[one.id].append(one)
    said = [(both[0].judged, both[1].judged) for both in by_id.values() if len(both) == _ORDERS]
    answered = [(one, other) for one, other in said if one is not None and other is not None]
    consistent = sum(one is other.other for one, other in answered)
    counts = Counter(answered)
    share = proportion(consistent, len(answered), level, undefined="no pair was answered in both orders")
    return SwapConsistency(
        pairs=len(said),
        consistent_share=share.of(len(said)),
        first_both=counts[Side.FIRST, Side.FIRST],
        second_both=counts[Side.SECOND, Side.SECOND],
        tie_once=sum((one is Side.TIE) != (other is Side.TIE) for one, other in answered),
    )
