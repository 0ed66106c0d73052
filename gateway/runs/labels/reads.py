"""Label sets read as a whole, as tasks of processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from dramaturg.api.alignment.v1 import agreement_pb2
from dramaturg.api.evaluation.v1 import label_service_pb2 as pb
from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_RATING, AnnotatorProgress, LabelSet
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult
from gateway.evaluations.statistics import Statistics
from gateway.processes.process import Ask
from gateway.runs.labels import sheets
from gateway.runs.labels.kinds import labelled_kind
from gateway.runs.labels.population import Population
from gateway.runs.records import Label, LabelSetRecord, NewLabelItem
from gateway.runs.results import in_pieces
from gateway.runs.service.results import reads_store
from gateway.runs.store import RunStore

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


_READ_AT_ONCE = 200


@reads_store
def describe(ask: Ask, record: LabelSetRecord, store: RunStore) -> Iterator[bytes]:
    """A label set with the progress of its annotators and their agreement, as a LabelSet."""
    labels = store.label_sets.labels(record.number)
    criteria = {one.item.position: one.item.criterion for one in _items(record.number, store)}
    add_agreement(record.description, labels, criteria, Statistics(ask))
    yield record.description.SerializeToString()


@reads_store
def export(
    ask: Ask, record: LabelSetRecord, request: pb.ExportLabelsRequest, kind: str, store: RunStore
) -> Iterator[bytes]:
    """The labels of a set as a file, in pieces.

    Args:
        ask: Not used.
        record: The label set.
        request: The sheet and its format.
        kind: The kind of the run, for sheets that read it.
        store: The run store.
    """
    del ask
    items = {one.item.position: one for one in _items(record.number, store)}
    labels = store.label_sets.labels(record.number)
    found = record.description
    if request.sheet == pb.LABEL_SHEET_SCORES:
        columns, rows = sheets.score_rows(items, labels)
    elif request.sheet == pb.LABEL_SHEET_ESTIMATES:
        labelled = labelled_kind(kind)
        assert labelled is not None
        population = Population(store, found.run_id, found.filter, labelled, found.task)
        stratified = found.draw == pb.LABEL_DRAW_STRATIFIED
        columns, rows = sheets.estimate_rows(population.items(), items, labels, stratified=stratified)
    elif request.sheet == pb.LABEL_SHEET_REVIEW:
        columns, rows = sheets.review_rows(
            found.task, items, labels, partial(_scenarios, store, found.run_id)
        )
    else:
        columns, rows = sheets.label_rows(found.task, items, labels)
    written = sheets.as_csv if request.format == pb.LABEL_FORMAT_CSV else sheets.as_json_lines
    yield from in_pieces(written(columns, rows))


def _scenarios(store: RunStore, run_id: str, index: int) -> ScenariosResult:
    found = store.samples.page(run_id, after=index - 1, limit=1)
    return found[0].scenarios if found and found[0].index == index else ScenariosResult()


def _items(number: int, store: RunStore) -> Iterator[NewLabelItem]:
    after = -1
    while page := store.label_sets.items(number, after=after, limit=_READ_AT_ONCE):
        yield from page
        after = page[-1].item.position
