"""Rubrics: the criteria of an evaluation of texts, written in TOML, and the ready ones.

A file has one table ``[[criteria]]`` for each criterion, with the fields of ``RubricCriterion``. A ready
rubric is named ``builtin:NAME``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dramaturg.api.evaluation.v1.run_pb2 import TextsRunOptions
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.datasets.requests import read_request

BUILTIN = "builtin:"
"""The start of the name of a ready rubric."""


class RubricError(ValueError):
    """A file is no rubric; the message says why."""


@dataclass(frozen=True)
class ReadyRubric:
    """A ready rubric."""

    name: str
    """Its name, without ``BUILTIN``."""
    version: int
    """Its version, which rises with a change of its words."""
    about: str
    """What it judges, in a sentence."""
    takes: str
    """The part of a row that it needs besides task and text: "context", "instructions", or empty."""
    measured: str
    """Detection and false alarms on a labelled set. Empty: not yet measured."""
    criteria: Sequence[RubricCriterion]
    """The criteria."""


@cache
def ready_rubrics() -> Mapping[str, ReadyRubric]:
    """The ready rubrics by name."""
    file = Path(__file__).parent / "ready_rubrics.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {
        name: ReadyRubric(name, **{**table, "criteria": _criteria({"criteria": table["criteria"]})})
        for name, table in tables.items()
    }


def read_rubric(source: str | Path) -> Sequence[RubricCriterion]:
    """Reads a rubric.

    Args:
        source: The path of a file, or ``builtin:NAME``.

    Raises:
        RubricError: The file is no TOML, its criteria break limits of the contract, or no ready rubric has
            the name.
        OSError: The file cannot be read.
    """
    if isinstance(source, str) and source.startswith(BUILTIN):
        rubric = ready_rubrics().get(source.removeprefix(BUILTIN))
        if rubric is None:
            raise RubricError(f"is no ready rubric; they are {', '.join(ready_rubrics())}")
        return rubric.criteria
    try:
        read = tomllib.loads(Path(source).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise RubricError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise RubricError(f"is not TOML: {error}") from error
    return _criteria(read)


def _criteria(read: dict[str, Any]) -> Sequence[RubricCriterion]:
    options = read_request(read, TextsRunOptions)
    if not isinstance(options, TextsRunOptions):
        raise RubricError("; ".join(f"{one.field}: {one.description}".removeprefix(": ") for one in options))
    if not options.criteria:
        raise RubricError("has no [[criteria]]")
    return list(options.criteria)
