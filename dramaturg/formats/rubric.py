"""Rubrics, the ready ones, and weights of the members of a panel: files in TOML.

A rubric has the criteria of an evaluation of texts: one table ``[[criteria]]`` for each criterion, with the
fields of ``RubricCriterion``. A ready rubric is named ``builtin:NAME``. A file of weights has one table
``[weights]`` with a number for each member::

    [weights]
    llm = 2.2
    "theirs@gpt-4o" = 0.85
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dramaturg.api.evaluation.v1.run_pb2 import TextsRunOptions
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.datasets.requests import read_request
from dramaturg.judge.rules import check_rubric


class PanelWeightsError(ValueError):
    """A file has no weights. The message names the file and the problem."""


class _Weights(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    weights: dict[str, float] = Field(min_length=1)


def read_weights(file: Path) -> Mapping[str, float]:
    """The weights of a file, by the name of the judge, or NAME@MODEL.

    Raises:
        PanelWeightsError: The file cannot be read, or has no such table.
    """
    try:
        return _Weights.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))).weights
    except OSError as error:
        raise PanelWeightsError(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise PanelWeightsError(f"{file} has no table [weights] of numbers by judge") from error


def write_weights(file: Path, weights: Mapping[str, float], comment: str) -> None:
    """Writes weights by judge, below a comment of one line.

    Raises:
        OSError: The file cannot be written.
    """
    rows = [f"{json.dumps(name)} = {weight:.6g}" for name, weight in weights.items()]
    file.write_text("\n".join([f"# {' '.join(comment.split())}", "[weights]", *rows, ""]), encoding="utf-8")


def weight_of(weights: Mapping[str, float], judge: str, model: str) -> float | None:
    """The weight of a member: of NAME@MODEL, else of NAME. None: the file has none."""
    return weights.get(f"{judge}@{model}", weights.get(judge)) if model else weights.get(judge)


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
        read = tomllib.loads(Path(source).read_text(encoding="utf-8-sig"))
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
    if problems := list(check_rubric(options.criteria)):
        raise RubricError("; ".join(f"{one.field}: {one.description}" for one in problems))
    return list(options.criteria)
