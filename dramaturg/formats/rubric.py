"""Rubrics: the criteria of an evaluation of texts, written in TOML.

A file has one table ``[[criteria]]`` for each criterion, with the fields of ``RubricCriterion``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.evaluation.v1.run_pb2 import TextsRunOptions
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.service.validation import violations


class RubricError(ValueError):
    """A file is no rubric; the message says why."""


def read_rubric(file: Path) -> Sequence[RubricCriterion]:
    """Reads a rubric.

    Raises:
        RubricError: The file is no TOML, or its criteria break limits of the contract.
        OSError: The file cannot be read.
    """
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise RubricError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise RubricError(f"is not TOML: {error}") from error
    try:
        options = ParseDict(read, TextsRunOptions())
    except ParseError as error:
        raise RubricError(f"is no rubric: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise RubricError("is nested too deeply") from error
    if broken := violations(options):
        raise RubricError("; ".join(f"{one.field}: {one.description}" for one in broken))
    if not options.criteria:
        raise RubricError("has no [[criteria]]")
    return list(options.criteria)
