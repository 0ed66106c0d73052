"""Agreement metrics of the items of a request, overall and by group; and whether a judge replaces people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import sparse, special

from services.alignment.agreement.annotations import (
    MORE_THAN_HALF,
    Annotations,
    Distance,
    MajorityRule,
    Patterns,
    Sample,
    count_majorities,
)
from services.alignment.agreement.coefficients import (
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    intraclass_correlations,
    krippendorff_alpha,
    masi_distances,
    observed_agreement,
    weighted_kappa,
)
from services.alignment.bootstrap import (
    Array,
    Bootstrapped,
    Index,
    Resampling,
    Statistic,
    bootstrap,
    by_cluster,
    members,
)
from services.alignment.errors import too_large
from services.alignment.estimates import Estimate, Scale, absent, benjamini_hochberg

DEFAULT_EPSILON = 0.2
"""The discount where a request names none: that of the paper for experts."""
FEWEST_ANNOTATORS = 3
"""The fewest people, as in the paper."""
FEWEST_ITEMS = 30
"""The fewest items, or clusters, on which a person is compared with the judge, as in the paper."""

_WINNING = 0.5
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ReplacedAnnotator:
    """The judge in the place of one person, over the items that both and another person labelled."""

    annotator: str
    items: int
    units: int
    """Items, or clusters of them."""
    judge_advantage: float
    """The share of items on which the judge agrees with the others at least as well as the person."""
    annotator_advantage: float
    """The share on which the person does."""
    standard_error: float | None
    """Of the difference of the two."""
    p: float | None = None
    """One-sided, of the hypothesis that the judge is worse by epsilon or more; ``None``: too few items."""
    adjusted_p: float | None = None

    @property
    def difference(self) -> float:
        """The advantage of the person less that of the judge."""
        return self.annotator_advantage - self.judge_advantage


@dataclass(frozen=True)
class Replacement:
    annotators: Sequence[ReplacedAnnotator]
    epsilon: float
    level: float
    undefined: str = ""
    """Why there is no answer; empty otherwise."""

    @property
    def winning_rate(self) -> float | None:
        """The share of people whose place the judge may take (omega)."""
        if self.undefined:
            return None
        error = 1 - self.level + _ROUNDING
        return float(
            np.mean([one.adjusted_p is not None and one.adjusted_p <= error for one in self.annotators])
        )

    @property
    def average_advantage(self) -> float | None:
        """The mean of the judge's advantages (rho)."""
        if self.undefined:
            return None
        return float(np.mean([one.judge_advantage for one in self.annotators]))

    @property
    def passed(self) -> bool:
        """Whether the judge may take the place of half of the people or more."""
        rate = self.winning_rate
        return rate is not None and rate >= _WINNING


def may_replace(sample: Sample, distance: Distance, judge: str, epsilon: float, level: float) -> Replacement:
    """Compares the judge with each person by their agreement with all other people.

    On each item of a person j the alignment of a label x with the others is the mean of [x = their label], of
    numbers minus the root of the mean squared difference, of sets 1 less MASI's distance. W_f is 1 where the
    judge's is at least that of j, W_h where that of j is at least the judge's. The judge may take the place
    of j where mean(W_h - W_f) is below epsilon: by Student's test over items, or clusters, with the p-values
    of all people adjusted by Benjamini and Yekutieli (2001). Where W_h - W_f is the same on all n units and
    not above 0, the p-value is (1 - epsilon)^n, which no distribution exceeds.

    Args:
        sample: The annotations.
        distance: How labels differ.
        judge: The annotator that is the judge.
        epsilon: By how much the judge may be worse: what it saves.
        level: One less the level is the error of the adjusted p-values.
    """
    people = [place for place, name in enumerate(sample.annotators) if name != judge]
    people = [place for place in people if (sample.annotator == place).any()]
    labelled = judge in sample.annotators and (sample.annotator == sample.annotators.index(judge)).any()
    if not labelled:
        return Replacement([], epsilon, level, f"{judge} labelled no item")
    if len(people) < FEWEST_ANNOTATORS:
        reason = f"{len(people)} annotators beside {judge} are fewer than {FEWEST_ANNOTATORS}"
        return Replacement([], epsilon, level, reason)
    table = _Table(sample, distance, sample.annotators.index(judge), people)
    compared = [one for place in people if (one := table.replaced(place, epsilon)) is not None]
    if not any(one.p is not None for one in compared):
        reason = f"no annotator shares {FEWEST_ITEMS} items with {judge} and another one"
        return Replacement([], epsilon, level, reason)
    # Benjamini and Yekutieli's is Benjamini and Hochberg's times the harmonic number, for any dependence.
    harmonic = sum(1 / rank for rank in range(1, len(compared) + 1))
    tested = benjamini_hochberg([1.0 if one.p is None else one.p for one in compared])
    found = [
        replace(one, adjusted_p=None if one.p is None or value is None else min(1.0, harmonic * value))
        for one, value in zip(compared, tested, strict=True)
    ]
    return Replacement(found, epsilon, level)


class _Table:
    """The labels by item and annotator: -1 where there is none."""

    def __init__(self, sample: Sample, distance: Distance, judge: int, people: Sequence[int]) -> None:
        items, item = np.unique(sample.item, return_inverse=True)
        codes = np.full((items.size, len(sample.annotators)), -1, np.intp)
        codes[item, sample.annotator] = sample.category
        cluster = sample.cluster_of_item[items]
        self._cluster: Index = np.where(
            cluster < 0, cluster.max(initial=-1) + 1 + np.arange(items.size), cluster
        )
        self._names, self._codes, self._judge, self._people = sample.annotators, codes, judge, people
        self._numbers: Array | None = None
        self._alike: Array | None = None
        if distance.numeric:
            self._numbers = np.array(sample.categories, np.float64)
        elif distance is Distance.MASI:
            sets = [one for one in sample.categories if isinstance(one, tuple)]
            self._alike = 1 - masi_distances(sets)

    def replaced(self, person: int, epsilon: float) -> ReplacedAnnotator | None:
        others = [place for place in self._people if place != person]
        seen = (self._codes[:, others] >= 0).any(axis=1)
        both = (self._codes[:, person] >= 0) & (self._codes[:, self._judge] >= 0) & seen
        if not both.any():
            return None
        given = self._codes[both][:, others]
        judge, own = (self._alignment(self._codes[both, place], given) for place in (self._judge, person))
        wins, holds = judge >= own - _ROUNDING, own >= judge - _ROUNDING
        difference = holds.astype(np.float64) - wins
        _, cluster = np.unique(self._cluster[both], return_inverse=True)
        sizes = np.bincount(cluster).astype(np.float64)
        sums = np.bincount(cluster, difference).astype(np.float64)
        count, units = difference.size, sizes.size
        mean = float(difference.mean())
        spread = float(((sums - mean * sizes) ** 2).sum())
        error = math.sqrt(units / (units - 1) * spread) / count if units > 1 else None
        p = None
        if units >= FEWEST_ITEMS and error is not None:
            if error > _ROUNDING:
                p = float(special.stdtr(units - 1, (mean - epsilon) / error))
            else:
                p = (1 - epsilon) ** units if mean <= 0 else 1.0
        name = self._names[person]
        return ReplacedAnnotator(name, count, units, float(wins.mean()), float(holds.mean()), error, p)

    def _alignment(self, own: Index, others: Index) -> Array:
        """How well each label agrees with those of the others that there are."""
        there = others >= 0
        if self._numbers is not None:
            squares = (self._numbers[own][:, np.newaxis] - self._numbers[others]) ** 2
            found: Array = -np.sqrt((squares * there).sum(axis=1) / there.sum(axis=1))
            return found
        alike = (
            own[:, np.newaxis] == others if self._alike is None else self._alike[own[:, np.newaxis], others]
        )
        shares: Array = (alike * there).sum(axis=1) / there.sum(axis=1)
        return shares


MAX_PAIRS = 20_000
"""The most pairs of annotators of one answer, over all its groups. 200 annotators make 19,900."""
MAX_GROUPS = 2000
"""The most groups of one answer."""

_ONE_LABEL = "all annotations have the same label"
_NO_PAIR = "no item has two annotations"


@dataclass(frozen=True)
class PairAgreement:
    """The agreement of two annotators, in order of name."""

    first: str
    second: str
    cohen_kappa: Estimate
    linear_kappa: Estimate
    quadratic_kappa: Estimate


@dataclass(frozen=True)
class AgreementGroup:
    """The figures of some items; see ``AgreementGroup`` in the contract, field by field."""

    group: str
    item_count: int
    fleiss_kappa: Estimate
    krippendorff_alpha: Estimate
    gwet_ac1: Estimate
    observed_agreement: Estimate
    pairs: list[PairAgreement]
    majority_labels: Mapping[str, int]
    intraclass: Sequence[Estimate]
    """The coefficients (1,1), (2,1) and (3,1)."""
    notes: Sequence[str] = ()
    """What figures mean that seem to contradict each other."""
    replacement: Replacement | None = None
    """Whether the judge may take the place of people; ``None``: no judge is named."""


def measure(
    annotations: Annotations,
    distance: Distance,
    *,
    grouped: bool,
    resampling: Resampling,
    rule: MajorityRule = MORE_THAN_HALF,
    judge: str = "",
    epsilon: float = DEFAULT_EPSILON,
) -> list[AgreementGroup]:
    """Measures all items together and, where they are grouped, each group by name.

    With a judge, an annotator that may take the place of the others is tested with a discount of epsilon.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups, pairs of annotators, or
            different sets of labels for their distances.
    """
    if grouped and len(annotations.groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(annotations.groups))
    groups: list[AgreementGroup] = []
    pairs = 0
    for name in ("", *annotations.groups) if grouped else ("",):
        resampling.checkpoint()
        sample = annotations.of_group(name)
        shared = _annotator_pairs(sample)
        pairs += len(shared)
        if pairs > MAX_PAIRS:
            raise too_large("pairs of annotators", limit=MAX_PAIRS, actual=pairs)
        found = _measure_group(name, sample, shared, distance, resampling, rule)
        if judge:
            tested = may_replace(sample, distance, judge, epsilon, resampling.level)
            found = replace(found, replacement=tested)
        groups.append(found)
    return groups


def _measure_group(
    name: str,
    sample: Sample,
    shared: list[tuple[int, int]],
    distance: Distance,
    resampling: Resampling,
    rule: MajorityRule,
) -> AgreementGroup:
    patterns = sample.patterns()
    pairable, size = patterns.pairable, sample.size
    found = AgreementGroup(
        group=name,
        item_count=pairable.items,
        fleiss_kappa=_fleiss(patterns, resampling).of(size),
        krippendorff_alpha=_alpha(pairable, distance, resampling).of(size),
        gwet_ac1=_ac1(patterns, resampling).of(size),
        observed_agreement=_observed(pairable, resampling).of(size),
        pairs=list(_pairs(sample, shared, distance, resampling)),
        majority_labels=count_majorities(patterns, size, rule),
        intraclass=[one.of(size) for one in _intraclass(sample, distance, resampling)],
    )
    return replace(found, notes=list(_paradox(found, pairable)))


def _paradox(group: AgreementGroup, pairable: Patterns) -> Iterator[str]:
    """Explains kappa's paradox (Feinstein and Cicchetti 1990), where the interval of alpha is below AC1's."""
    alpha, ac1, observed = group.krippendorff_alpha, group.gwet_ac1, group.observed_agreement.value
    if alpha.upper is None or ac1.lower is None or observed is None or alpha.upper >= ac1.lower:
        return
    usage = pairable.multiplicities @ pairable.counts
    shares = usage / usage.sum()
    label = pairable.categories[int(shares.argmax())]
    name = f"{label:g}" if isinstance(label, float) else "|".join(label)
    yield (
        f"alpha and kappas are low although annotators agree on {observed:.3f} of the pairs: "
        f"{shares.max():.3f} of the labels are {name!r}, so that chance alone would give an agreement of "
        f"{float((shares**2).sum()):.3f}, and the few other labels decide the coefficients (Feinstein and "
        "Cicchetti 1990); read AC1 and the agreement beside them, or label more items with the rare labels"
    )


def _observed(pairable: Patterns, resampling: Resampling) -> Estimate:
    if not pairable.items:
        return absent(_NO_PAIR)
    return _estimate(observed_agreement(pairable), pairable, _NO_PAIR, resampling, Scale.SHARE)


def _fleiss(patterns: Patterns, resampling: Resampling) -> Estimate:
    totals = patterns.totals
    if not patterns.items or totals.max() < 2:
        return absent(_NO_PAIR)
    fewest, most = int(totals.min()), int(totals.max())
    if fewest != most:
        return absent(f"items have from {fewest} to {most} annotations", patterns.items)
    return _estimate(fleiss_kappa(patterns), patterns, _ONE_LABEL, resampling)


def _alpha(pairable: Patterns, distance: Distance, resampling: Resampling) -> Estimate:
    if not pairable.items:
        return absent(_NO_PAIR)
    undefined = f"{_ONE_LABEL}, where items have two annotations or more"
    return _estimate(krippendorff_alpha(pairable, distance), pairable, undefined, resampling)


def _ac1(patterns: Patterns, resampling: Resampling) -> Estimate:
    if not patterns.pairable.items:
        return absent(_NO_PAIR)
    return _estimate(gwet_ac1(patterns), patterns, "the scale has one label only", resampling)


def _estimate(
    statistic: Statistic,
    patterns: Patterns,
    undefined: str,
    resampling: Resampling,
    scale: Scale = Scale.CORRELATION,
) -> Estimate:
    width = len(patterns.categories)
    found = _bootstrap(statistic, patterns.multiplicities, patterns.cluster, patterns.row, resampling, width)
    return found.estimate(0, patterns.items, undefined, scale)


def _bootstrap(
    statistic: Statistic,
    multiplicities: Index,
    cluster: Index,
    row: Index,
    resampling: Resampling,
    width: int = 0,
) -> Bootstrapped:
    """Draws clusters, where any item is in one, else items, of which equal ones are one row."""
    if not (cluster >= 0).any():
        return bootstrap(statistic, multiplicities, resampling, width=width)
    drawn = members(cluster, row, multiplicities.size)
    ones = np.ones(drawn.shape[0], np.intp)
    return bootstrap(by_cluster(statistic, drawn), ones, resampling, width=max(width, multiplicities.size))


def _annotator_pairs(sample: Sample) -> list[tuple[int, int]]:
    """The pairs of annotators, by index, with an item in common."""
    seen = sparse.csr_array(
        (np.ones(sample.item.size), (sample.annotator, sample.item)),
        shape=(len(sample.annotators), int(sample.item.max(initial=-1)) + 1),
    )
    together = sparse.triu(seen @ seen.T, k=1).tocoo()
    return sorted(zip(together.row.tolist(), together.col.tolist(), strict=True))


def _intraclass(sample: Sample, distance: Distance, resampling: Resampling) -> list[Estimate]:
    """The intraclass correlations of the annotated items."""
    if not distance.numeric:
        return [absent("labels are compared as names: ask for the ordinal or interval distance")] * 3
    items, item = np.unique(sample.item, return_inverse=True)
    who, annotator = np.unique(sample.annotator, return_inverse=True)
    if items.size * who.size != sample.item.size or who.size < 2:
        return [absent("the items have different annotators, or one only", items.size)] * 3
    numbers = np.zeros((items.size, who.size))
    numbers[item, annotator] = np.array(sample.categories, np.float64)[sample.category]
    # Sums must not depend on the order of the items.
    kinds, row, multiplicities = np.unique(numbers, axis=0, return_inverse=True, return_counts=True)
    cluster = sample.cluster_of_item[items]
    found = _bootstrap(intraclass_correlations(kinds), multiplicities, cluster, row, resampling)
    reason = "all labels are equal, or there is one item"
    return [found.estimate(place, items.size, reason, Scale.CORRELATION) for place in range(3)]


def _pairs(
    sample: Sample, shared: list[tuple[int, int]], distance: Distance, resampling: Resampling
) -> Iterator[PairAgreement]:
    order = np.lexsort((sample.item, sample.annotator))
    item, category = sample.item[order], sample.category[order]
    bounds = np.searchsorted(sample.annotator[order], np.arange(len(sample.annotators) + 1))
    own = [slice(start, end) for start, end in pairwise(bounds.tolist())]
    for first, second in shared:
        resampling.checkpoint()
        both, ours, theirs = np.intersect1d(
            item[own[first]], item[own[second]], assume_unique=True, return_indices=True
        )
        chosen = np.stack([category[own[first]][ours], category[own[second]][theirs]])
        cells, row, multiplicities = np.unique(chosen, axis=1, return_inverse=True, return_counts=True)
        codes = np.unique(cells, return_inverse=True)[1].reshape(cells.shape)
        kappa, cluster = cohen_kappa(codes[0], codes[1]), sample.cluster_of_item[both]
        found = _bootstrap(kappa, multiplicities, cluster, row, resampling)
        weighted = [absent("labels are compared as names: ask for the ordinal or interval distance")] * 2
        if distance.numeric:
            numbers = cells.astype(np.float64)
            if distance is Distance.INTERVAL:
                numbers = np.array(sample.categories, np.float64)[cells]
            weighted = [
                _bootstrap(
                    weighted_kappa(numbers[0], numbers[1], power), multiplicities, cluster, row, resampling
                ).estimate(0, ours.size, "both gave every item the same label", Scale.CORRELATION)
                for power in (1, 2)
            ]
        yield PairAgreement(
            sample.annotators[first],
            sample.annotators[second],
            found.estimate(0, ours.size, "both gave every item the same label", Scale.CORRELATION).of(
                sample.size
            ),
            *(one.of(sample.size) for one in weighted),
        )
