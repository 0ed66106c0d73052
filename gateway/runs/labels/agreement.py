"""The agreement of annotators, as AlignmentService measures it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from dramaturg.api.alignment.v1 import agreement_pb2
from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_RATING, AnnotatorProgress, LabelSet
from gateway.evaluations.statistics import Statistics
from gateway.runs.records import Label

_CRITERION = "criterion"


def add_agreement(
    label_set: LabelSet, labels: Sequence[Label], criteria: Mapping[int, str], statistics: Statistics
) -> None:
    """Writes the progress of the annotators and their agreement into a label set.

    Args:
        label_set: The label set.
        labels: Its labels.
        criteria: The criterion of each item, by position.
        statistics: Calls AlignmentService.
    """
    counts = Counter(one.annotator for one in labels)
    for annotator in sorted(counts):
        progress = AnnotatorProgress(annotator=annotator, labelled_count=counts[annotator])
        progress.update_time.FromDatetime(
            max(one.update_time for one in labels if one.annotator == annotator)
        )
        label_set.annotators.append(progress)
    by_item = defaultdict[int, list[Label]](list)
    for one in labels:
        by_item[one.position].append(one)
    if not any(len(given) > 1 for given in by_item.values()):
        return
    request = agreement_pb2.MeasureAgreementRequest(
        group_tag=_CRITERION if any(criteria.values()) else "",
        distance=agreement_pb2.LABEL_DISTANCE_INTERVAL
        if label_set.task == LABEL_TASK_RATING
        else agreement_pb2.LABEL_DISTANCE_NOMINAL,
    )
    for position, given in by_item.items():
        criterion = criteria[position]
        request.items.add(
            id=str(position),
            tags={_CRITERION: criterion} if criterion else {},
            annotations=[
                agreement_pb2.Annotation(annotator=one.annotator, labels=[one.label]) for one in given
            ],
        )
    response = statistics.alignment("MeasureAgreement", request)
    if response is None:
        label_set.agreement_problem = statistics.problems[0]
    else:
        label_set.agreement.extend(response.groups)
