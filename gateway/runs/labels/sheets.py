"""Labels as the sheets that ``dramaturg labels align`` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from dramaturg import authoring
from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_SHEET_ESTIMATES,
    LABEL_SHEET_LABELS,
    LABEL_SHEET_REVIEW,
    LABEL_SHEET_SCORES,
    LABEL_SHEET_UNSPECIFIED,
    LABEL_TASK_CHOICE,
    LABEL_TASK_PREFERENCE,
    LABEL_TASK_REVIEW,
    LabelSheet,
    LabelTask,
)
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult
from dramaturg.authoring import ACCEPTED, REJECTED
from dramaturg.datasets.spreadsheet import csv_record
from dramaturg.judge.conversations import Unit
from dramaturg.results.frames import compact_json
from gateway.runs.labels.drawn import EITHER, LEVELS, REJECT, Drawn, unit_of
from gateway.runs.labels.draws import stratum
from gateway.runs.records import Label, NewLabelItem

_LABELS = ("item", "criterion", "annotator", "label", "note", "model")
_PREFERENCES = ("item", "annotator", "label", "note", "prompt", "first", "second", "judged")
_SCORES = ("id", "criterion", "model", "human", "judge", "probability")
_ESTIMATES = ("item", "system", "task", "criterion", "predicted", "label", "probability", "stratum")
_VALUES = {"PASS": 1.0, "FAIL": 0.0, "first": 1.0, "tie": 0.5, "second": 0.0, REJECT: 0.0}
_VALUES |= dict.fromkeys((*LEVELS, EITHER), 1.0)

Row = Mapping[str, Any]


def sheets_of(task: LabelTask.ValueType) -> Sequence[LabelSheet.ValueType]:
    """The sheets of a set with a task."""
    return (
        LABEL_SHEET_UNSPECIFIED,
        LABEL_SHEET_LABELS,
        # A choice is no number.
        *(() if task == LABEL_TASK_CHOICE else (LABEL_SHEET_SCORES, LABEL_SHEET_ESTIMATES)),
        *((LABEL_SHEET_REVIEW,) if task in {LABEL_TASK_CHOICE, LABEL_TASK_REVIEW} else ()),
    )


def value_of(label: str) -> float:
    """A label as a number: 1 for PASS, the first text and a kept scenario, 0.5 for a tie, else 0.

    A rating is itself.
    """
    return _VALUES[label] if label in _VALUES else float(label)


def label_rows(
    task: LabelTask.ValueType, items: Mapping[int, NewLabelItem], labels: Iterable[Label]
) -> tuple[Sequence[str], Iterator[Row]]:
    """The columns and rows of LABEL_SHEET_LABELS."""
    compared = task == LABEL_TASK_PREFERENCE

    def rows() -> Iterator[Row]:
        for one in labels:
            found = items[one.position]
            row = {
                "item": found.item.item,
                "criterion": found.item.criterion,
                "annotator": one.annotator,
                "label": one.label,
                "note": one.note,
                "model": found.model,
            }
            if compared:
                row |= {
                    "prompt": found.sample_id,
                    "first": found.model or "first",
                    "second": found.opponent or "second",
                    "judged": one.label,
                }
            yield row

    return (_PREFERENCES if compared else _LABELS), rows()


def score_rows(
    items: Mapping[int, NewLabelItem], labels: Iterable[Label]
) -> tuple[Sequence[str], Iterator[Row]]:
    """The columns and rows of LABEL_SHEET_SCORES."""

    def rows() -> Iterator[Row]:
        for position, mine in groupby(labels, lambda one: one.position):
            found = items[position]
            yield {
                "id": found.item.item,
                "criterion": found.item.criterion,
                "model": found.model,
                "human": fmean(value_of(one.label) for one in mine),
                "judge": found.judged,
                "probability": found.probability,
            }

    return _SCORES, rows()


def estimate_rows(
    population: Iterable[Drawn],
    items: Mapping[int, NewLabelItem],
    labels: Iterable[Label],
    *,
    stratified: bool,
) -> tuple[Sequence[str], Iterator[Row]]:
    """The columns and rows of LABEL_SHEET_ESTIMATES.

    Args:
        population: What the items were drawn from.
        items: The items by position.
        labels: The labels, by position.
        stratified: Whether the items were drawn by the judge's value.
    """
    means = {
        _key(items[position]): (fmean(value_of(one.label) for one in mine), items[position].probability)
        for position, mine in groupby(labels, lambda one: one.position)
    }

    def rows() -> Iterator[Row]:
        # Texts of one model for one sample and criterion are items of their own.
        seen: Counter[tuple[int, str, str]] = Counter()
        for one in population:
            system = f"{one.model} against {one.opponent}" if one.opponent else one.model
            place = one.sample, one.criterion, system
            seen[place] += 1
            number = str(seen[place]) if seen[place] > 1 else ""
            key = one.sample, one.candidate_id, one.criterion, one.model, one.opponent, one.unit
            label, probability = means.get(key, (None, None))
            yield {
                "item": "/".join(part for part in (str(one.sample), one.criterion, number) if part),
                "system": system,
                "task": str(one.sample),
                "criterion": one.criterion,
                "predicted": one.judged,
                "label": label,
                "probability": probability,
                "stratum": stratum(one.judged) if stratified else None,
            }

    return _ESTIMATES, rows()


def _key(found: NewLabelItem) -> tuple[int, str, str, str, str, Unit | None]:
    item = found.item
    return item.sample_index, item.candidate_id, item.criterion, found.model, found.opponent, unit_of(item)


def review_rows(
    task: LabelTask.ValueType,
    items: Mapping[int, NewLabelItem],
    labels: Sequence[Label],
    written: Callable[[int], ScenariosResult],
) -> tuple[Sequence[str], Iterator[Row]]:
    """The columns and rows of LABEL_SHEET_REVIEW.

    Args:
        task: LABEL_TASK_REVIEW or LABEL_TASK_CHOICE.
        items: The items by position.
        labels: The labels, by position.
        written: The scenarios of a sample, by its index.
    """
    given = {position: list(mine) for position, mine in groupby(labels, lambda one: one.position)}
    chosen = task == LABEL_TASK_CHOICE
    people = sorted({one.annotator for one in labels}) if chosen else []
    columns = [name for name in authoring.COLUMNS if not name.startswith(authoring.ANNOTATOR)]

    def rows() -> Iterator[Row]:
        for position, found in items.items():
            result = written(found.item.sample_index)
            made = authoring.sheet_rows(result, duplicates_kept=True)
            wanted = f"{result.id}/{found.item.candidate_id}"
            row = next((one for one in made if one["id"] == wanted), None)
            if row is None:
                continue
            mine = given.get(position, [])
            if chosen:
                row |= {f"{authoring.ANNOTATOR}{one.annotator}": one.label for one in mine}
            else:
                row |= _reviewed([one.label for one in mine])
            yield row

    return [*columns, *(f"{authoring.ANNOTATOR}{name}" for name in people)], rows()


def _reviewed(labels: Sequence[str]) -> Mapping[str, str]:
    """The status, choice and level that more annotators give than any other; none where they are tied."""
    ranked = Counter(labels).most_common(2)
    if not ranked or (len(ranked) > 1 and ranked[0][1] == ranked[1][1]):
        return {}
    label = ranked[0][0]
    if label == REJECT:
        return {"status": REJECTED}
    return {"status": ACCEPTED, **({"gold": EITHER} if label == EITHER else {"level": label})}


def as_csv(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[bytes]:
    yield csv_record(columns).encode()
    for row in rows:
        yield csv_record([row.get(name) for name in columns]).encode()


def as_json_lines(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[bytes]:
    for row in rows:
        kept = {name: row[name] for name in columns if row.get(name) not in {None, ""}}
        yield f"{compact_json(kept)}\n".encode()
