"""Messages of MeasureAccuracy, MeasureAgreement and AggregateLabels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from dramaturg.api.alignment.v1 import accuracy_pb2, aggregation_pb2, agreement_pb2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNSPECIFIED, AbstainReason
from dramaturg.service.errors import Violation, invalid, invalid_fields
from dramaturg.service.threads import Checkpoint
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.accuracy.metrics import ALL, Design, Item, Subset
from services.alignment.aggregation import Aggregation, Dependence, Votes
from services.alignment.agreement.annotations import (
    NUMERIC,
    AnnotatedItem,
    Annotations,
    Category,
    Majority,
    MajorityRule,
    label_of,
)
from services.alignment.agreement.measure import DEFAULT_EPSILON
from services.alignment.codec.estimates import decode_policy, decode_resampling
from services.alignment.errors import too_large

_CHUNK = 10_000


def decode_accuracy_design(request: accuracy_pb2.MeasureAccuracyRequest, checkpoint: Checkpoint) -> Design:
    """Decodes the design.

    Raises:
        ServiceError: INVALID_ARGUMENT: a subset's name is taken, or an item has a prediction and also a
            reason for having none.
    """
    if violations := [*_taken_names(request), *_contradictions(request, checkpoint)]:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    subsets = [Subset(one.name, one.tag, list(dict.fromkeys(one.values))) for one in request.subsets]
    groupings = [list(grouping.tags) for grouping in request.groupings]
    named = [tag for grouping in groupings for tag in grouping] + [subset.tag for subset in subsets]
    tags = list(dict.fromkeys([*named, *filter(None, (request.macro_tag, request.cluster_tag))]))
    return Design(
        items=_items(request, tags, checkpoint),
        tags=tags,
        groupings=groupings,
        subsets=subsets,
        policy=decode_policy(request.abstention_policy),
        macro_tag=request.macro_tag,
        resampling=decode_resampling(request, checkpoint),
        cluster_tag=request.cluster_tag,
    )


def _items(
    request: accuracy_pb2.MeasureAccuracyRequest, tags: Sequence[str], checkpoint: Checkpoint
) -> Counter[Item]:
    items: Counter[Item] = Counter()
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        reason = "" if item.predicted else AbstainReason.Name(item.abstain_reason)
        values = tuple(item.tags.get(tag, "") for tag in tags)
        items[Item(item.gold, item.predicted, reason, values)] += 1
    return items


def _taken_names(request: accuracy_pb2.MeasureAccuracyRequest) -> Iterator[Violation]:
    taken = {ALL}
    for index, subset in enumerate(request.subsets):
        if subset.name in taken:
            yield Violation(f"subsets[{index}].name", f"is {subset.name!r}, which is taken")
        taken.add(subset.name)


def _contradictions(
    request: accuracy_pb2.MeasureAccuracyRequest, checkpoint: Checkpoint
) -> Iterator[Violation]:
    checkpoint()
    for index, item in enumerate(request.items):
        if item.predicted and item.abstain_reason != ABSTAIN_REASON_UNSPECIFIED:
            yield Violation(f"items[{index}].abstain_reason", "is set, though the item has a prediction")


def decode_distance(request: agreement_pb2.MeasureAgreementRequest) -> agreement_pb2.LabelDistance.ValueType:
    """The distance; unspecified is ``NOMINAL``."""
    return request.distance or agreement_pb2.LABEL_DISTANCE_NOMINAL


def decode_annotations(request: agreement_pb2.MeasureAgreementRequest, checkpoint: Checkpoint) -> Annotations:
    """Reads what annotators said.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation: an annotator who judges an item twice; a label
            that is not one number, where the distance needs numbers.
    """
    numeric = decode_distance(request) in NUMERIC
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


def decode_majority_rule(request: agreement_pb2.MeasureAgreementRequest) -> MajorityRule:
    """Reads how the label of an item is found.

    Raises:
        ServiceError: INVALID_ARGUMENT: the tie label is no number, where labels are.
    """
    tie_label = request.tie_label
    if tie_label and decode_distance(request) in NUMERIC:
        number = _number([tie_label])
        if number is None:
            raise invalid("tie_label", "is not a finite number, as the distance needs")
        tie_label = label_of(number)
    return MajorityRule(request.majority_rule == agreement_pb2.MAJORITY_RULE_PLURALITY, tie_label)


def decode_epsilon(request: agreement_pb2.MeasureAgreementRequest) -> float:
    return request.epsilon if request.HasField("epsilon") else DEFAULT_EPSILON


def encode_agreement(
    groups: Sequence[agreement_pb2.AgreementGroup],
    items: Sequence[AnnotatedItem],
    majorities: Sequence[Majority],
) -> agreement_pb2.MeasureAgreementResponse:
    """Writes what was measured.

    Args:
        groups: The groups.
        items: The items whose labels are listed; none: they are not.
        majorities: Their labels.
    """
    return agreement_pb2.MeasureAgreementResponse(
        groups=groups,
        majorities=[
            agreement_pb2.ItemMajority(
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


def _number(labels: Sequence[str]) -> float | None:
    if len(labels) != 1:
        return None
    try:
        value = float(labels[0])
    except ValueError:
        return None
    return value + 0.0 if math.isfinite(value) else None  # -0.0 and 0.0 are one category


DEFAULT_ITERATIONS = 200
"""The largest number of iterations of a request that names none."""
MAX_AGGREGATED_CELLS = 20_000_000
"""The most probabilities of one computation: items x labels, votes x labels, annotators x labels x labels."""


def decode_votes(request: aggregation_pb2.AggregateLabelsRequest, checkpoint: Checkpoint) -> Votes:
    """Reads the votes.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation: an annotation without exactly one label, or an
            annotator who labels an item twice. RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many cells.
    """
    annotators = sorted({one.annotator for item in request.items for one in item.annotations})
    labels = sorted({label for item in request.items for one in item.annotations for label in one.labels})
    places = {name: place for place, name in enumerate(annotators)}
    codes = {name: code for code, name in enumerate(labels)}
    rows: list[tuple[int, int, int]] = []
    violations: list[Violation] = []
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        seen: set[str] = set()
        for place, one in enumerate(item.annotations):
            path = f"items[{index}].annotations[{place}]"
            if len(one.labels) != 1:
                violations.append(Violation(f"{path}.labels", f"has {len(one.labels)} labels; 1 is needed"))
            elif one.annotator in seen:
                violations.append(Violation(f"{path}.annotator", "has labelled the item already"))
            else:
                seen.add(one.annotator)
                rows.append((index, places[one.annotator], codes[one.labels[0]]))
        if len(violations) >= MAX_VIOLATIONS:
            break
    if not rows and not violations:
        violations.append(Violation("items", "have no annotations"))
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    count = len(labels)
    cells = max(len(request.items) * count, len(annotators) * count**2, len(rows) * count)
    if cells > MAX_AGGREGATED_CELLS:
        raise too_large("probabilities", limit=MAX_AGGREGATED_CELLS, actual=cells)
    table = np.array(rows, np.intp).T
    return Votes(table[0], table[1], table[2], len(request.items), annotators, labels)


def encode_aggregation(
    request: aggregation_pb2.AggregateLabelsRequest,
    votes: Votes,
    dependence: Dependence,
    found: Aggregation | None,
) -> aggregation_pb2.AggregateLabelsResponse:
    """Encodes the labels; those of the most votes alone where ``found`` is ``None``."""
    response = aggregation_pb2.AggregateLabelsResponse(
        unidentified=dependence.unidentified, effective_annotator_count=dependence.effective
    )
    for pair in dependence.pairs:
        response.dependent_pairs.add(
            first=votes.annotators[pair.first],
            second=votes.annotators[pair.second],
            item_count=pair.items,
            error_correlation=pair.correlation,
        )
    counts = np.zeros((votes.items, len(votes.labels)))
    np.add.at(counts, (votes.item, votes.label), 1.0)
    for index, item in enumerate(request.items):
        most = np.flatnonzero(counts[index] == counts[index].max()).tolist() if counts[index].any() else []
        response.items.add(id=item.id, majority=[votes.labels[code] for code in most])
    if found is not None:
        _add_estimates(response, votes, dependence, found)
    return response


def _add_estimates(
    response: aggregation_pb2.AggregateLabelsResponse,
    votes: Votes,
    dependence: Dependence,
    found: Aggregation,
) -> None:
    best = np.where(np.isnan(found.probabilities), -1.0, found.probabilities).argmax(axis=1)
    consensus = np.bincount(votes.annotator, votes.label == best[votes.item], len(votes.annotators))
    labelled = np.bincount(votes.annotator, minlength=len(votes.annotators))
    response.prior.update({label: float(found.shares[code]) for code, label in enumerate(votes.labels)})
    response.iteration_count, response.converged = found.iterations, found.converged
    for index, item in enumerate(response.items):
        if not item.majority:
            continue
        item.label = votes.labels[int(best[index])]
        item.probabilities.update(
            {label: float(found.probabilities[index, code]) for code, label in enumerate(votes.labels)}
        )
    accuracies = found.accuracies()
    for place, name in enumerate(votes.annotators):
        quality = response.annotators.add(
            annotator=name,
            item_count=int(labelled[place]),
            accuracy=float(accuracies[place]),
            consensus_share=float(consensus[place] / labelled[place]),
            vote_weight=float(dependence.weights[place]),
        )
        for right, label in enumerate(votes.labels):
            for given, other in enumerate(votes.labels):
                probability = float(found.confusion[place, right, given])
                quality.confusion.add(right=label, given=other, probability=probability)
