"""The figures of summaries as a sentence and as sections of tables and charts, for every renderer.

What is of one kind is in ``dramaturg.kinds.<name>.tables``. The terminal (``dramaturg.cli.tables``), the
report (``dramaturg.report``), and Markdown, CSV, LaTeX and plots (``dramaturg.plots``) render them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.kinds import KINDS, find_summary_kind
from dramaturg.tables.common import abstention_sections, general_sections, leaderboard, mean_lead, show_mean
from dramaturg.tables.model import Section


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    if not summary.sample_count:
        return "There are no samples."
    module = _module(summary)
    if summary.failed_sample_count == summary.sample_count:
        return f"No sample has a result: {summary.sample_count:,} failed."
    text: str = mean_lead(summary) if module is None else module.lead(summary)
    return text


def sections(summary: Summary) -> Iterator[Section]:
    """The leaderboard, the sections of the kind, then those of all kinds.

    The abstentions follow the first section with a heat map, beside which a page has room for them.
    """
    module = _module(summary)
    if summary.leaderboard:
        yield leaderboard(summary, module)
    waiting = list(abstention_sections(summary))
    for one in () if module is None else module.sections(summary):
        yield one
        if any(table.has_heat for table in one.tables):
            yield from waiting
            waiting = []
    yield from waiting
    yield from general_sections(summary)


def mean_text(kind: str) -> Callable[[float | None], str]:
    """How means of the leaderboard of a kind are shown."""
    module = next((one.tables for one in KINDS if one.name == kind), None)
    show: Callable[[float | None], str] = show_mean(module)
    return show


def _module(summary: Summary) -> Any:
    kind = find_summary_kind(summary)
    return None if kind is None else kind.tables
