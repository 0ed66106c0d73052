"""The page: figures and samples as one self-contained HTML document, written piece by piece.

Judged texts are data: they are escaped by the template engine, and a content security policy allows no
script but the page's own and nothing from outside.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.report.charts import HeatMap, Value, bars, heat_map, whisker
from dramaturg.report.figures import Figures
from dramaturg.report.views import view
from dramaturg.report.views.common import dollars
from dramaturg.results.leaderboard import PRIMARY, SCALES, leaderboard

SAMPLES_SHOWN = 500
"""How many samples are shown one by one where nothing else is said."""

_TEMPLATES = Path(__file__).parent / "templates"
_PIECES = 32  # pieces of the template that are joined before they are handed on


@dataclass(frozen=True)
class Heading:
    """What stands above the figures."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    """Short facts, such as ("run", its id)."""
    warning: str = ""
    """What the reader must know first, such as that the run has not ended."""


def render(
    heading: Heading, figures: Figures, samples: Iterable[RunSample], limit: int = SAMPLES_SHOWN
) -> Iterator[str]:
    """The page, in pieces.

    Args:
        heading: What stands above.
        figures: What was counted of all samples.
        samples: The samples, of which the first ``limit`` are shown. Read as the page is made.
        limit: The most samples shown one by one.
    """
    script = _read("page.js")
    entries = leaderboard(figures.sums(), figures.kind) if figures.kind else []
    scale = SCALES.get(PRIMARY.get(figures.kind, ""), (0.0, 1.0))
    shown = min(limit, figures.samples)
    stream = (
        _environment()
        .get_template("page.html.j2")
        .stream(
            title=heading.title,
            facts=heading.facts,
            warning=heading.warning,
            css=Markup(_read("page.css")),  # noqa: S704 -- our own file
            script=Markup(script),  # noqa: S704 -- our own file
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            tiles=_tiles(figures),
            entries=[(entry, whisker(*_interval(entry), scale), _abstained(entry)) for entry in entries],
            ranked_by=_ranked_by(figures.kind),
            scale_text=f"{scale[0]:g} to {scale[1]:g}",
            maps=list(_maps(figures, [entry.model for entry in entries], scale)),
            abstentions=bars(figures.abstentions, max(1, figures.judgements)),
            judgements=figures.judgements,
            costs=_costs(figures.usage),
            samples=(view(sample) for sample in islice(samples, shown)),
            samples_note=f"The first {shown:,} of {figures.samples:,}." if shown < figures.samples else "",
            version=version("dramaturg"),
        )
    )
    stream.enable_buffering(_PIECES)
    yield from stream


def _interval(entry: LeaderboardEntry) -> tuple[float | None, float | None, float | None]:
    mean = entry.mean if entry.HasField("mean") else None
    if not entry.HasField("lower"):
        return mean, None, None
    return mean, entry.lower, entry.upper


def _abstained(entry: LeaderboardEntry) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(entry.abstentions_by_reason.items()))


def _ranked_by(kind: str) -> str:
    return {
        "scripts": "By the share of verdicts that are PASS, over all criteria.",
        "decision": "By the share of choices that are right.",
        "dialogue": "By the mean rating, from 1 to 10.",
        "graphs": "By the mean F1 of the edges.",
        "texts": "By the share of comparisons won by roles, a tie counting half.",
    }.get(kind, "")


def _tiles(figures: Figures) -> list[tuple[str, str]]:
    abstained = sum(figures.abstentions.values())
    coverage = f"{1 - abstained / figures.judgements:.1%}" if figures.judgements else "not known"
    usage = figures.usage
    return [
        ("samples", f"{figures.samples:,}"),
        ("samples without a result", f"{figures.failed:,}"),
        ("judgements", f"{figures.judgements:,}"),
        ("coverage", coverage),
        ("model calls", f"{usage.provider_call_count:,}"),
        ("cost", dollars(usage)),
    ]


def _costs(usage: Usage) -> list[tuple[str, str]]:
    return [
        (
            "cost" + (" (of the calls whose price is known)" if usage.unpriced_call_count else ""),
            dollars(usage),
        ),
        ("prompt tokens", f"{usage.prompt_token_count:,}"),
        ("of these served from the provider's cache", f"{usage.cached_prompt_token_count:,}"),
        ("completion tokens", f"{usage.completion_token_count:,}"),
        ("calls answered by a provider", f"{usage.provider_call_count:,}"),
        ("calls answered from the ledger, at no cost", f"{usage.cache_hit_count:,}"),
        ("attempts that failed and were made again", f"{usage.retried_call_count:,}"),
        ("calls without token counts", f"{usage.unmetered_call_count:,}"),
        ("calls whose price is not known", f"{usage.unpriced_call_count:,}"),
    ]


def _maps(
    figures: Figures, models: Sequence[str], scale: tuple[float, float]
) -> Iterator[tuple[str, str, HeatMap]]:
    measures = figures.measures()
    if len(measures) > 1 and len(models) > 0:
        cells = {
            (measure, model): figures.by_model[model, measure].value() for model, measure in figures.by_model
        }
        note = "The mean of the judgements that were reached. A dash: none was."
        if odd := _off_scale(cells, scale):
            note += f" Without colour: not on the scale of {scale[0]:g} to {scale[1]:g}."
        yield "Criterion by model", note, heat_map(measures, models, cells, scale, odd)
    for name, sums in sorted(figures.shown_groups().items()):
        values = sorted({value for value, _ in sums})
        cells = {key: of_cell.value() for key, of_cell in sums.items()}
        note = f"The same measure as the leaderboard's, by {name}."
        yield f"{name.capitalize()} by model", note, heat_map(values, models, cells, scale)


def _off_scale(cells: dict[tuple[str, str], Value], scale: tuple[float, float]) -> set[str]:
    """The measures of which a mean is not on the scale."""
    low, high = scale
    return {
        row for (row, _), cell in cells.items() if cell.value is not None and not low <= cell.value <= high
    }


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
