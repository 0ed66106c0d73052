"""The released format of CoScript (Yuan et al. 2023): tasks with one constraint, and a script for each.

A row is a JSON object with ``id``, "Abstract Goal", "Specific Goal", "Constraint", "Script" (a list of
numbered steps) and "Category". A file is a JSON array of rows, or has one a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets.json_lines import json_array_or_lines
from dramaturg.service.validation import violations

# "2.5 cups of flour" has no number of its own.
_NUMBER = re.compile(r"\s*+\d{1,4}\s*+[.):、．](?!\d)\s*+")


class Skipped(NamedTuple):
    """An invalid row."""

    source: str
    """The file's name."""
    row: int
    """Which row of the file it is, from 0."""
    reason: str
    """The reason."""


@dataclass
class Conversion:
    """The result of a conversion."""

    requests: list[EvaluateScriptsRequest] = field(default_factory=list)
    """One request a task, in the order of their first rows."""
    skipped: list[Skipped] = field(default_factory=list)
    """The invalid rows."""


def read_file(file: Path) -> Sequence[Any]:
    """The rows of a file.

    Raises:
        LineError: The file is neither a JSON array nor JSON Lines.
        OSError: The file cannot be read.
    """
    return [row for _, row in json_array_or_lines(file)]


def convert(files: Iterable[tuple[str, Sequence[Any]]]) -> Conversion:
    """Makes one request of the rows that share ``id`` and specific goal; each file is one model.

    Args:
        files: The name of each model, unique, with its rows.
    """
    conversion = Conversion()
    tasks: dict[tuple[str, str], EvaluateScriptsRequest] = {}
    for model, rows in files:
        for index, row in enumerate(rows):
            if problem := next(_problems(row), None):
                conversion.skipped.append(Skipped(model, index, problem))
                continue
            key = (str(row["id"]), row["Specific Goal"].strip())
            request = tasks.get(key) or _request(row)
            if any(candidate.id == model for candidate in request.candidates):
                conversion.skipped.append(
                    Skipped(model, index, f"repeats the id {key[0]} with the same specific goal")
                )
                continue
            request.candidates.append(_candidate(model, row["Script"]))
            if broken := violations(request):
                del request.candidates[-1]
                conversion.skipped.append(
                    Skipped(model, index, f"{broken[0].field}: {broken[0].description}")
                )
                continue
            if key not in tasks:
                tasks[key] = request
                conversion.requests.append(request)
    return conversion


def strip_number(step: str) -> str:
    """A step without the number that it begins with."""
    number = _NUMBER.match(step)
    return step[number.end() :].strip() if number else step.strip()


def _problems(row: Any) -> Iterator[str]:
    if not isinstance(row, dict):
        yield f"is not an object but {type(row).__name__}"
        return
    if isinstance(row.get("id"), bool) or not isinstance(row.get("id"), int | str):
        yield "id: must be a number or a string"
    goal = row.get("Specific Goal")
    if not isinstance(goal, str) or not goal.strip():
        yield "Specific Goal: must be a string that is not blank"
    for name in ("Abstract Goal", "Constraint", "Category"):
        if not isinstance(row.get(name, ""), str):
            yield f"{name}: must be a string"
    steps = row.get("Script")
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        yield "Script: must be a list of strings"


def _request(row: Any) -> EvaluateScriptsRequest:
    constraint, topic = row.get("Constraint", "").strip(), row.get("Category", "").strip()
    task = Task(
        id=str(row["id"]),
        goal=row["Specific Goal"].strip(),
        constraints=[constraint] if constraint else [],
        topic=topic,
        abstract_goal=row.get("Abstract Goal", "").strip(),
    )
    return EvaluateScriptsRequest(task=task, tags={"topic": topic} if topic else {})


def _candidate(model: str, steps: Sequence[str]) -> Candidate:
    stripped = [strip_number(step) for step in steps]
    script = Script(steps=[Step(text=step) for step in stripped if step])
    return Candidate(id=model, model=model, script=script)
