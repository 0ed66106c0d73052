"""Tables of texts, one a row, as rows of an evaluation of texts.

A row has the columns ``task`` or ``prompt``, ``text`` and ``model``, and optionally ``id`` (of the task),
``topic`` and ``reference``; all other columns are tags.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest, RolePlan
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest, RubricCriterion
from dramaturg.datasets.json_lines import json_objects
from dramaturg.judge.rubrics import criterion_role
from dramaturg.service.validation import violations

OWN = ("id", "task", "prompt", "text", "model", "topic", "reference")
"""The columns that are no tags."""


class TableError(ValueError):
    """A file is no such table; the message says why."""


class Skipped(NamedTuple):
    """An invalid row."""

    row: int
    """The row, from 1, without the header."""
    reason: str
    """The reason."""


@dataclass
class Conversion:
    """The result of a conversion."""

    requests: list[EvaluateTextsRequest] = field(default_factory=list)
    """One request a task, in the order of their first rows. They have no criteria."""
    skipped: list[Skipped] = field(default_factory=list)
    """The invalid rows."""


def read_table(file: Path) -> Sequence[Mapping[str, Any]]:
    """The rows of a file: CSV where its name ends in .csv, else JSON Lines.

    Raises:
        TableError: The file is no table.
        LineError: A line is no JSON object.
        OSError: The file cannot be read.
    """
    if file.suffix.lower() != ".csv":
        return [row for _, row in json_objects(file)]
    try:
        text = file.read_text(encoding="utf-8-sig")
        table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows = list(table)
    except UnicodeDecodeError as error:
        raise TableError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except csv.Error as error:
        raise TableError(f"is not CSV: {error}") from error
    if missing := {"text"} - {*(table.fieldnames or ())}:
        raise TableError(f"has no column {', '.join(missing)}")
    return rows


def convert(rows: Iterable[Mapping[str, Any]]) -> Conversion:
    """Makes one request of the rows that share id and task.

    A text's id is its model, numbered if a task has several texts of one model. Topic, reference and tags are
    those of the task's first row.
    """
    conversion = Conversion()
    found: dict[tuple[str, str], EvaluateTextsRequest] = {}
    for number, row in enumerate(rows, start=1):
        if problem := _problem(row):
            conversion.skipped.append(Skipped(number, problem))
            continue
        goal = (row.get("task") or row.get("prompt") or "").strip()
        key = (_text(row.get("id")), goal)
        request = found.get(key) or _request(row, key)
        request.texts.append(_evaluated(row, request))
        broken = [one for one in violations(request) if one.field != "criteria"]
        if broken:
            del request.texts[-1]
            conversion.skipped.append(Skipped(number, f"{broken[0].field}: {broken[0].description}"))
        elif key not in found:
            found[key] = request
            conversion.requests.append(request)
    return conversion


def pairs(request: EvaluateTextsRequest, rubric: Sequence[RubricCriterion]) -> Iterator[EvaluatePairsRequest]:
    """Makes a row of an evaluation of pairs of every two texts of a task.

    The criteria are the roles.

    Raises:
        TableError: A criterion is too long for a role, or another field for a pair.
    """
    for one in rubric:
        if broken := violations(criterion_role(one)):
            raise TableError(f"{one.id}: is no role: its {broken[0].field} {broken[0].description}")
    for first, second in combinations(request.texts, 2):
        tags = {"topic": request.task.topic} if request.task.topic else {}
        pair = EvaluatePairsRequest(
            id=f"{request.task.id or request.task.goal[:80]}: {first.id}, {second.id}"[:200],
            source=request.task.goal,
            first=ComparedText(text=first.text, model=first.model),
            second=ComparedText(text=second.text, model=second.model),
            roles=RolePlan(criteria=rubric),
            tags={**tags, **request.tags},
        )
        if broken := violations(pair):
            raise TableError(f"{broken[0].field}: {broken[0].description}")
        yield pair


def _problem(row: Mapping[str, Any]) -> str:
    if None in row:
        return "has more cells than the header"
    for name in OWN:
        value = row.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
            return f"{name}: is no text"
    if not isinstance(row.get("text"), str):
        return "text: is missing"
    if not _text(row.get("task")).strip() and not _text(row.get("prompt")).strip():
        return "task: is missing"
    return ""


def _request(row: Mapping[str, Any], key: tuple[str, str]) -> EvaluateTextsRequest:
    tags = {
        name: _text(value)
        for name, value in row.items()
        if name not in OWN and isinstance(value, str | int | float) and _text(value)
    }
    task = Task(id=key[0], goal=key[1], topic=_text(row.get("topic")))
    return EvaluateTextsRequest(task=task, reference=_text(row.get("reference")), tags=tags)


def _evaluated(row: Mapping[str, Any], request: EvaluateTextsRequest) -> EvaluatedText:
    model = _text(row.get("model"))
    same = sum(one.model == model for one in request.texts)
    name = model or "text"
    return EvaluatedText(id=f"{name} ({same + 1})" if same else name, model=model, text=row["text"])


def _text(value: Any) -> str:
    return "" if value is None else str(value)
