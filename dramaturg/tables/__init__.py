"""The figures of summaries as a sentence and as sections of tables and charts, for every renderer.

Each kind has a module here, named after its member of ``Summary.kind``, with two functions: ``lead(summary)``
returns the sentence that opens the report, and ``sections(summary)`` yields the kind's sections. A kind
without a module has the leaderboard, abstentions, judges and usage. The terminal (``dramaturg.cli.tables``),
the report (``dramaturg.report``), and Markdown, CSV, LaTeX and plots (``dramaturg.plots``) render them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
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
    show: Callable[[float | None], str] = show_mean(_kind_module(kind))
    return show


def _module(summary: Summary) -> Any:
    return _kind_module(summary.WhichOneof("kind") or "")


def _kind_module(kind: str) -> Any:
    name = f"{__name__}.{kind}"
    return import_module(name) if kind and find_spec(name) else None
