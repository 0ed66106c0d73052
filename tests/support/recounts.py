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


def student(
    values: Sequence[float], lowest: float, highest: float, clusters: Sequence[object] = ()
) -> tuple[float, float] | None:
    """Student's interval of 95 % of a mean, clustered as that of a ratio (Cochran 1977, section 2.11).

    It is of the log odds of the place of the mean on its scale; on a scale without an upper end the wider one
    of the logarithm and of the inverse cube root. Values that are all one end of the scale have the interval
    of Clopper and Pearson, other equal ones have none.

    Args:
        values: The values.
        lowest: The lower end of the scale.
        highest: Its upper end, which may be infinite.
        clusters: What each value is of. Empty: each is of its own.
    """
    sums: dict[object, list[float]] = {}
    for place, value in enumerate(values):
        sums.setdefault(clusters[place] if clusters else place, []).append(value)
    mean, number, span = statistics.fmean(values), len(sums), highest - lowest
    deviations = math.fsum((math.fsum(one) - mean * len(one)) ** 2 for one in sums.values())
    if deviations < 1e-18:
        reach = span * (1 - 0.025 ** (1 / number))
        if not math.isfinite(span) or mean not in {lowest, highest}:
            return None
        return (highest - reach, highest) if mean == highest else (lowest, lowest + reach)
    error = math.sqrt(number / (number - 1) * deviations) / len(values)
    half = float(stats.t.ppf(0.975, number - 1)) * error
    if math.isinf(span):
        above = mean - lowest
        ratio = half / above
        steep = (1 - ratio / 3) ** -3 if 1 - ratio / 3 > 0.5 else 8.0
        return lowest + above * math.exp(-ratio), lowest + above * max(math.exp(ratio), steep)
    share = (mean - lowest) / span
    half /= span * share * (1 - share)
    low, high = (1 / (1 + math.exp(-(math.log(share / (1 - share)) + side * half))) for side in (-1, 1))
    return lowest + span * low, lowest + span * high


def check_mean(
    row: Mapping[str, str],
    column: str,
    values: Sequence[float],
    scale: tuple[float, float],
    *,
    clusters: Sequence[object] = (),
    of: int | None = None,
    unit: float = 1.0,
) -> None:
    """Asserts that a cell is a mean with the interval of ``student``.

    Args:
        row: The row.
        column: The column.
        values: The values.
        scale: The ends of the scale.
        clusters: What each value is of. Empty: each is of its own.
        of: The number of items, judged or not. None: all are judged.
        unit: What the table multiplies the mean by, e.g. 100.
    """
    total = len(values) if of is None else of
    told = [row[f"{column}{part}"] for part in ("", " (judged)", " (of)")]
    expected = [unit * statistics.fmean(values), len(values), total]
    assert [float(one) for one in told] == pytest.approx(expected, abs=1e-9), (column, row)
    ends = [row.get(f"{column}{part}", "") for part in (" (lower)", " (upper)")]
    interval = student(values, *scale, clusters)
    if interval is None:
        assert ends == ["", ""], (column, row)
    else:
        found = [float(one) for one in ends]
        assert found == pytest.approx([unit * end for end in interval], abs=1e-6), (column, row)


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
