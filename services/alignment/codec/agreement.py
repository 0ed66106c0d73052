"""Messages of MeasureAgreement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dramaturg.api.alignment.v1 import agreement_pb2 as pb
from dramaturg.service.errors import Violation, invalid, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.agreement.annotations import AnnotatedItem, Annotations, Category, Distance
from services.alignment.agreement.majority import Majority, MajorityRule, label_of
from services.alignment.agreement.measure import AgreementGroup
from services.alignment.agreement.replacement import DEFAULT_EPSILON, Replacement
from services.alignment.codec.estimates import encode_estimate
from services.alignment.workers import Checkpoint

_DISTANCES = {
    pb.LABEL_DISTANCE_UNSPECIFIED: Distance.NOMINAL,
    pb.LABEL_DISTANCE_NOMINAL: Distance.NOMINAL,
    pb.LABEL_DISTANCE_ORDINAL: Distance.ORDINAL,
    pb.LABEL_DISTANCE_INTERVAL: Distance.INTERVAL,
    pb.LABEL_DISTANCE_MASI: Distance.MASI,
}
_CHUNK = 10_000


def decode_distance(request: pb.MeasureAgreementRequest) -> Distance:
    """Decodes the distance."""
    return _DISTANCES[request.distance]


def decode_annotations(request: pb.MeasureAgreementRequest, checkpoint: Checkpoint) -> Annotations:
    """Reads what annotators said.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation: an annotator who judges an item twice; a label
            that is not one number, where the distance needs numbers.
    """
    numeric = decode_distance(request).numeric
    items: list[AnnotatedItem] = []
    violations: list[Violation] = []
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        categories: dict[str, Category] = {}
        for place, annotation in enumerate(item.annotations):
            path = f"items[{index}].annotations[{place}]"
            if annotation.annotator in categories:
                violations.append(Violation(f"{path}.annotator", "has judged the item already"))
            category = _number(annotation.labels) if numeric else tuple(sorted(set(annotation.labels)))
            if category is None:
                violations.append(
                    Violation(f"{path}.labels", "is not one finite number, as the distance needs")
                )
            else:
                categories[annotation.annotator] = category
        group, cluster = (item.tags.get(tag, "") for tag in (request.group_tag, request.cluster_tag))
        items.append(AnnotatedItem(categories, group, cluster, item.id))
        if len(violations) >= MAX_VIOLATIONS:
            break
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    return Annotations(items)


def decode_majority_rule(request: pb.MeasureAgreementRequest) -> MajorityRule:
    """Reads how the label of an item is found.

    Raises:
        ServiceError: INVALID_ARGUMENT: the tie label is no number, where labels are.
    """
    tie_label = request.tie_label
    if tie_label and decode_distance(request).numeric:
        number = _number([tie_label])
        if number is None:
            raise invalid("tie_label", "is not a finite number, as the distance needs")
        tie_label = label_of(number)
    return MajorityRule(request.majority_rule == pb.MAJORITY_RULE_PLURALITY, tie_label)


def decode_epsilon(request: pb.MeasureAgreementRequest) -> float:
    return request.epsilon if request.HasField("epsilon") else DEFAULT_EPSILON


def encode_agreement(
    groups: Sequence[AgreementGroup], items: Sequence[AnnotatedItem], majorities: Sequence[Majority]
) -> pb.MeasureAgreementResponse:
    """Writes what was measured.

    Args:
        groups: The groups.
        items: The items whose labels are listed; none: they are not.
        majorities: Their labels.
    """
    return pb.MeasureAgreementResponse(
        groups=_encoded(groups),
        majorities=[
            pb.ItemMajority(
                id=item.id,
                group=item.group,
                label=majority.label,
                vote_count=majority.votes,
                annotation_count=majority.annotations,
                by_tie_label=majority.by_tie_label,
            )
            for item, majority in zip(items, majorities, strict=True)
        ],
    )


def _encoded(groups: Sequence[AgreementGroup]) -> Iterator[pb.AgreementGroup]:
    for group in groups:
        yield pb.AgreementGroup(
            group=group.group,
            item_count=group.item_count,
            fleiss_kappa=encode_estimate(group.fleiss_kappa),
            krippendorff_alpha=encode_estimate(group.krippendorff_alpha),
            gwet_ac1=encode_estimate(group.gwet_ac1),
            observed_agreement=encode_estimate(group.observed_agreement),
            pairs=[
                pb.PairAgreement(
                    first_annotator=pair.first,
                    second_annotator=pair.second,
                    cohen_kappa=encode_estimate(pair.cohen_kappa),
                    linear_kappa=encode_estimate(pair.linear_kappa),
                    quadratic_kappa=encode_estimate(pair.quadratic_kappa),
                )
                for pair in group.pairs
            ],
            majority_labels=group.majority_labels,
            icc_one_way=encode_estimate(group.intraclass[0]),
            icc_agreement=encode_estimate(group.intraclass[1]),
            icc_consistency=encode_estimate(group.intraclass[2]),
            notes=group.notes,
            replacement=None if group.replacement is None else _encode_replacement(group.replacement),
        )


def _encode_replacement(found: Replacement) -> pb.JudgeReplacement:
    return pb.JudgeReplacement(
        winning_rate=found.winning_rate,
        average_advantage=found.average_advantage,
        passed=found.passed,
        epsilon=found.epsilon,
        undefined=found.undefined,
        annotators=[
            pb.ReplacedAnnotator(
                annotator=one.annotator,
                item_count=one.items,
                unit_count=one.units,
                judge_advantage=one.judge_advantage,
                annotator_advantage=one.annotator_advantage,
                standard_error=one.standard_error,
                p_value=one.p,
                adjusted_p_value=one.adjusted_p,
            )
            for one in found.annotators
        ],
    )


def _number(labels: Sequence[str]) -> float | None:
    if len(labels) != 1:
        return None
    try:
        value = float(labels[0])
    except ValueError:
        return None
    return value + 0.0 if math.isfinite(value) else None  # -0.0 and 0.0 are one category
