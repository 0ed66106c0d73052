"""Agreement metrics of the items of a request, overall and by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import sparse

from services.alignment.agreement.alpha import krippendorff_alpha
from services.alignment.agreement.annotations import Annotations, Distance, Patterns, Sample
from services.alignment.agreement.chance import cohen_kappa, fleiss_kappa, gwet_ac1, observed_agreement
from services.alignment.agreement.majority import MORE_THAN_HALF, MajorityRule, count_majorities
from services.alignment.agreement.numeric import intraclass_correlations, weighted_kappa
from services.alignment.agreement.replacement import DEFAULT_EPSILON, Replacement, may_replace
from services.alignment.bootstrap import (
    Bootstrapped,
    Index,
    Resampling,
    Statistic,
    bootstrap,
    by_cluster,
    members,
)
from services.alignment.errors import too_large
from services.alignment.estimates import Estimate, absent
from services.alignment.jackknife import Scale

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
