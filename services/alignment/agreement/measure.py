"""Agreement metrics of the items of a request, overall and by group; and whether a judge replaces people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy import sparse, special

from dramaturg.api.alignment.v1 import agreement_pb2 as pb
from services.alignment.agreement.annotations import (
    MORE_THAN_HALF,
    NUMERIC,
    Annotations,
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


def may_replace(
    sample: Sample, distance: pb.LabelDistance.ValueType, judge: str, epsilon: float, level: float
) -> pb.JudgeReplacement:
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
        return pb.JudgeReplacement(epsilon=epsilon, undefined=f"{judge} labelled no item")
    if len(people) < FEWEST_ANNOTATORS:
        reason = f"{len(people)} annotators beside {judge} are fewer than {FEWEST_ANNOTATORS}"
        return pb.JudgeReplacement(epsilon=epsilon, undefined=reason)
    table = _Table(sample, distance, sample.annotators.index(judge), people)
    compared = [one for place in people if (one := table.replaced(place, epsilon)) is not None]
    if not any(one.HasField("p_value") for one in compared):
        reason = f"no annotator shares {FEWEST_ITEMS} items with {judge} and another one"
        return pb.JudgeReplacement(epsilon=epsilon, undefined=reason)
    # Benjamini and Yekutieli's is Benjamini and Hochberg's times the harmonic number, for any dependence.
    harmonic = sum(1 / rank for rank in range(1, len(compared) + 1))
    tested = benjamini_hochberg([one.p_value if one.HasField("p_value") else 1.0 for one in compared])
    for one, value in zip(compared, tested, strict=True):
        if one.HasField("p_value") and value is not None:
            one.adjusted_p_value = min(1.0, harmonic * value)
    error = 1 - level + _ROUNDING
    replaced = [one.HasField("adjusted_p_value") and one.adjusted_p_value <= error for one in compared]
    rate = float(np.mean(replaced))
    return pb.JudgeReplacement(
        winning_rate=rate,
        average_advantage=float(np.mean([one.judge_advantage for one in compared])),
        passed=rate >= _WINNING,
        epsilon=epsilon,
        annotators=compared,
    )


class _Table:
    """The labels by item and annotator: -1 where there is none."""

    def __init__(
        self, sample: Sample, distance: pb.LabelDistance.ValueType, judge: int, people: Sequence[int]
    ) -> None:
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
        if distance in NUMERIC:
            self._numbers = np.array(sample.categories, np.float64)
        elif distance == pb.LABEL_DISTANCE_MASI:
            sets = [one for one in sample.categories if isinstance(one, tuple)]
            self._alike = 1 - masi_distances(sets)

    def replaced(self, person: int, epsilon: float) -> pb.ReplacedAnnotator | None:
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
        return pb.ReplacedAnnotator(
            annotator=self._names[person],
            item_count=count,
            unit_count=units,
            judge_advantage=float(wins.mean()),
            annotator_advantage=float(holds.mean()),
            standard_error=error,
            p_value=p,
        )

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


def measure(
    annotations: Annotations,
    distance: pb.LabelDistance.ValueType,
    *,
    grouped: bool,
    resampling: Resampling,
    rule: MajorityRule = MORE_THAN_HALF,
    judge: str = "",
    epsilon: float = DEFAULT_EPSILON,
) -> list[pb.AgreementGroup]:
    """Measures all items together and, where they are grouped, each group by name.

    With a judge, an annotator that may take the place of the others is tested with a discount of epsilon.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups, pairs of annotators, or
            different sets of labels for their distances.
    """
    if grouped and len(annotations.groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(annotations.groups))
    groups: list[pb.AgreementGroup] = []
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
            found.replacement.CopyFrom(may_replace(sample, distance, judge, epsilon, resampling.level))
        groups.append(found)
    return groups


def _measure_group(
    name: str,
    sample: Sample,
    shared: list[tuple[int, int]],
    distance: pb.LabelDistance.ValueType,
    resampling: Resampling,
    rule: MajorityRule,
) -> pb.AgreementGroup:
    patterns = sample.patterns()
    pairable, size = patterns.pairable, sample.size
    alpha, ac1 = _alpha(pairable, distance, resampling).of(size), _ac1(patterns, resampling).of(size)
    observed = _observed(pairable, resampling).of(size)
    icc = [one.of(size).encode() for one in _intraclass(sample, distance, resampling)]
    return pb.AgreementGroup(
        group=name,
        item_count=pairable.items,
        fleiss_kappa=_fleiss(patterns, resampling).of(size).encode(),
        krippendorff_alpha=alpha.encode(),
        gwet_ac1=ac1.encode(),
        observed_agreement=observed.encode(),
        pairs=_pairs(sample, shared, distance, resampling),
        majority_labels=count_majorities(patterns, size, rule),
        icc_one_way=icc[0],
        icc_agreement=icc[1],
        icc_consistency=icc[2],
        notes=_paradox(alpha, ac1, observed.value, pairable),
    )


def _paradox(alpha: Estimate, ac1: Estimate, observed: float | None, pairable: Patterns) -> Iterator[str]:
    """Explains kappa's paradox (Feinstein and Cicchetti 1990), where the interval of alpha is below AC1's."""
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


def _alpha(pairable: Patterns, distance: pb.LabelDistance.ValueType, resampling: Resampling) -> Estimate:
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


def _intraclass(
    sample: Sample, distance: pb.LabelDistance.ValueType, resampling: Resampling
) -> list[Estimate]:
    """The intraclass correlations of the annotated items."""
    if distance not in NUMERIC:
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
    sample: Sample,
    shared: list[tuple[int, int]],
    distance: pb.LabelDistance.ValueType,
    resampling: Resampling,
) -> Iterator[pb.PairAgreement]:
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
        if distance in NUMERIC:
            numbers = cells.astype(np.float64)
            if distance == pb.LABEL_DISTANCE_INTERVAL:
                numbers = np.array(sample.categories, np.float64)[cells]
            weighted = [
                _bootstrap(
                    weighted_kappa(numbers[0], numbers[1], power), multiplicities, cluster, row, resampling
                ).estimate(0, ours.size, "both gave every item the same label", Scale.CORRELATION)
                for power in (1, 2)
            ]
        plain = found.estimate(0, ours.size, "both gave every item the same label", Scale.CORRELATION)
        cohen, linear, quadratic = (one.of(sample.size).encode() for one in (plain, *weighted))
        yield pb.PairAgreement(
            first_annotator=sample.annotators[first],
            second_annotator=sample.annotators[second],
            cohen_kappa=cohen,
            linear_kappa=linear,
            quadratic_kappa=quadratic,
        )
