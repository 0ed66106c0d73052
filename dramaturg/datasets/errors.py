"""Errors of a dataset as a whole."""

from __future__ import annotations

EXTRA = "dramaturg[datasets]"
"""The extra that brings what reads Parquet and object stores."""


class DatasetError(Exception):
    """A dataset that cannot be read to its end, e.g. because of a wrong header or a damaged file.

    The message is a predicate whose subject is the dataset, e.g. "is damaged: ...".

    Attributes:
        line: The number of the line at fault, from 1. 0: it is about the file as a whole.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class DatasetLimitError(DatasetError):
    """A dataset that has more than a limit allows."""


def missing(what: str, package: str) -> DatasetError:
    """The error where an optional package is not installed."""
    return DatasetError(f'is {what}, which needs {package}: pip install "{EXTRA}"')
