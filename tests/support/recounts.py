"""Draws, intervals and cells of tables, for tests that count the results of the papers again."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence

import pytest
from scipy import stats

from tests.support.openai_server import Body


def draw(*parts: object) -> int:
    """A number from 0 to 999 that the parts alone determine."""
    return int(hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest(), 16) % 1000


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share, without correction for continuity."""
    z = 1.959963984540054
    middle = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return middle - half, middle + half


def student(values: Sequence[float], lowest: float, highest: float) -> tuple[float, float]:
    """Student's interval of 95 % of a mean, of the log odds of its place on the scale."""
    span = highest - lowest
    place = (statistics.fmean(values) - lowest) / span
    error = statistics.stdev(values) / span / math.sqrt(len(values)) / (place * (1 - place))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    low, high = (1 / (1 + math.exp(-(math.log(place / (1 - place)) + side * half))) for side in (-1, 1))
    return lowest + span * low, lowest + span * high


def shown(body: Body) -> list[str]:
    """The texts of the messages of a request."""
    return [str(message["content"]) for message in body["messages"]]


def check_share(row: Mapping[str, str], column: str, hits: int, judged: int, of: int | None = None) -> None:
    """Asserts that a cell is a share, with Wilson's interval; without a judged item it is empty."""
    if not judged:
        assert row[column] == "", (column, row)
        return
    low, high = wilson(hits, judged)
    told = [float(row[f"{column}{part}"]) for part in ("", " (lower)", " (upper)", " (judged)", " (of)")]
    assert told == pytest.approx(
        [hits / judged, low, high, judged, judged if of is None else of], abs=1e-6
    ), (
        column,
        row,
    )
