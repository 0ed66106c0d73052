from __future__ import annotations

from dramaturg.report.charts import bars, interval_of


def test_an_interval_is_clipped_to_its_scale() -> None:
    mark = interval_of(5.5, (0.0, 20.0), (1.0, 10.0))
    assert mark is not None
    assert (mark.mean, mark.lower, mark.upper) == (50.0, 0.0, 100.0)
    assert interval_of(None, None, (0.0, 1.0)) is None


def test_bars_are_relative_to_the_largest_count() -> None:
    assert [(bar.name, bar.length, bar.share) for bar in bars({"b": 2, "a": 4, "none": 0}, 8)] == [
        ("a", 100, 0.5),
        ("b", 50, 0.25),
    ]
