"""Looks up figures in the JSON of a summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def figure(rows: Iterable[Mapping[str, Any]], **wanted: Any) -> Any:
    """The one row with these members, for example ``figure(found, model="m", tags={})``."""
    found = [row for row in rows if wanted.items() <= row.items()]
    assert len(found) == 1, f"{len(found)} rows have {wanted}"
    return found[0]


def verdict_counts(summary: Mapping[str, Any], **wanted: Any) -> dict[str, int]:
    """The verdicts of one entry of a summary of scripts, by outcome. Default: all verdicts."""
    keys = {"tags": {}, "all_models": "model" not in wanted, "criterion": "", **wanted}
    one = figure(summary["scripts"]["figures"], **keys)
    counts = {
        "PASS": one["pass_count"],
        "FAIL": one["fail_count"],
        "ABSTAIN": sum(one["abstentions_by_reason"].values()),
    }
    assert sum(counts.values()) == one["verdict_count"]
    return counts
