"""Labels as the sheets that ``dramaturg align`` reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_PREFERENCE, LabelTask
from dramaturg.datasets.spreadsheet import csv_record
from dramaturg.results.columns import compact_json
from gateway.runs.records import Label, NewLabelItem

_LABELS = ("item", "criterion", "annotator", "label", "note", "model")
_PREFERENCES = ("item", "annotator", "label", "note", "prompt", "first", "second", "judged")
_SCORES = ("id", "criterion", "model", "human", "judge")
_VALUES = {"PASS": 1.0, "FAIL": 0.0, "first": 1.0, "tie": 0.5, "second": 0.0}

Row = Mapping[str, Any]


def value_of(label: str) -> float:
    """A label as a number: 1 for PASS and for the first text, 0.5 for a tie, else 0; a rating is itself."""
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
            }

    return _SCORES, rows()


def as_csv(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[bytes]:
    yield csv_record(columns).encode()
    for row in rows:
        yield csv_record([row.get(name) for name in columns]).encode()


def as_json_lines(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[bytes]:
    for row in rows:
        kept = {name: row[name] for name in columns if row.get(name) not in {None, ""}}
        yield f"{compact_json(kept)}\n".encode()
