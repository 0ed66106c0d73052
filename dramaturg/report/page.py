"""The report page: aggregates and samples as one self-contained HTML document, rendered in pieces.

Judged texts are untrusted: the template engine escapes them, and a content security policy allows only the
page's own script and no external resource.
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
from dramaturg.kinds import find_kind
from dramaturg.report.aggregator import ReportAggregator
from dramaturg.report.charts import HeatMap, Value, bars, heat_map, whisker
from dramaturg.report.views.common import format_cost
from dramaturg.report.views.sample import view
from dramaturg.results.files import read_results
from dramaturg.results.leaderboard import leaderboard, scale_of
from dramaturg.results.sums import SumAccumulator

SAMPLES_SHOWN = 500
"""The default number of samples shown one by one."""

_TEMPLATES = Path(__file__).parent / "templates"
_BUFFER_SIZE = 32  # template events joined into one piece


@dataclass(frozen=True)
class Heading:
    """The heading of the page."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    """Name and value pairs, e.g. ("run", its id)."""
    warning: str = ""
    """A warning shown at the top, e.g. that the run has not ended."""


def render(
    heading: Heading, aggregator: ReportAggregator, samples: Iterable[RunSample], limit: int = SAMPLES_SHOWN
) -> Iterator[str]:
    """Renders the page in pieces.

    Args:
        heading: The heading.
        aggregator: The aggregates of all samples.
        samples: The samples; the first ``limit`` are shown. Consumed lazily.
        limit: The maximum number of samples shown one by one.
    """
    script = _read("page.js")
    entries = leaderboard(aggregator.sums(), aggregator.kind) if aggregator.kind else []
    ranked = [entry.model for entry in entries]
    scale = scale_of(aggregator.primary_measure)
    total = aggregator.samples
    shown = min(limit, total)
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
            tiles=_tiles(aggregator),
            entries=[(entry, whisker(*_interval(entry), scale), _abstained(entry)) for entry in entries],
            ranked_by=_ranked_by(aggregator),
            scale_text=f"{scale[0]:g} to {scale[1]:g}",
            maps=list(_maps(aggregator, [*dict.fromkeys([*ranked, *aggregator.models()])], scale)),
            abstentions=bars(aggregator.abstentions, max(1, aggregator.judgements)),
            judgements=aggregator.judgements,
            costs=_costs(aggregator.usage),
            samples=(view(sample) for sample in islice(samples, shown)),
            samples_note=f"The first {shown:,} of {total:,}." if shown < total else "",
            version=version("dramaturg"),
        )
    )
    stream.enable_buffering(_BUFFER_SIZE)
    yield from stream


def write_report(
    results: Path, out: Path, *, title: str = "", limit: int = SAMPLES_SHOWN
) -> ReportAggregator:
    """Writes the report of the output of an evaluate command. Reads the results twice, in constant memory.

    Args:
        results: The folder of results, or one results file.
        out: The page; overwritten if it exists.
        title: The title of the page. Empty: "Evaluation" and the folder's name.
        limit: The maximum number of samples shown one by one.

    Returns:
        The aggregates of all samples.

    Raises:
        LineError: A line is not a result.
        OSError: A file cannot be read or written.
    """
    aggregator = ReportAggregator()
    for sample in read_results(results):
        aggregator.add(sample)
    folder = results if results.is_dir() else results.parent
    heading = Heading(title or f"Evaluation {folder.name}", [("results", results.name)])
    with out.open("w", encoding="utf-8") as file:
        for piece in render(heading, aggregator, read_results(results), limit):
            file.write(piece)
    return aggregator


def _interval(entry: LeaderboardEntry) -> tuple[float | None, float | None, float | None]:
    mean = entry.mean if entry.HasField("mean") else None
    if not entry.HasField("lower"):
        return mean, None, None
    return mean, entry.lower, entry.upper


def _abstained(entry: LeaderboardEntry) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(entry.abstentions_by_reason.items()))


def _ranked_by(aggregator: ReportAggregator) -> str:
    kind = find_kind(aggregator.kind)
    if kind is None:
        return ""
    text = kind.results.ranking
    if kind.results.is_setup(aggregator.primary_measure):
        text += f" In the setup {aggregator.primary_measure}; other setups have measures of their own."
    return text


def _tiles(aggregator: ReportAggregator) -> list[tuple[str, str]]:
    abstained = sum(aggregator.abstentions.values())
    coverage = f"{1 - abstained / aggregator.judgements:.1%}" if aggregator.judgements else "unknown"
    usage = aggregator.usage
    return [
        ("samples", f"{aggregator.samples:,}"),
        ("samples without a result", f"{aggregator.failed:,}"),
        ("judgements", f"{aggregator.judgements:,}"),
        ("coverage", coverage),
        ("model calls", f"{usage.provider_call_count:,}"),
        ("cost", format_cost(usage)),
    ]


def _costs(usage: Usage) -> list[tuple[str, str]]:
    return [
        (
            "cost" + (" (calls with a known price only)" if usage.unpriced_call_count else ""),
            format_cost(usage),
        ),
        ("prompt tokens", f"{usage.prompt_token_count:,}"),
        ("prompt tokens served from the provider's cache", f"{usage.cached_prompt_token_count:,}"),
        ("completion tokens", f"{usage.completion_token_count:,}"),
        ("calls answered by a provider", f"{usage.provider_call_count:,}"),
        ("calls answered from the ledger, at no cost", f"{usage.cache_hit_count:,}"),
        ("failed attempts that were retried", f"{usage.retried_call_count:,}"),
        ("completions bought and not used", f"{usage.unused_completion_count:,}"),
        ("calls without token counts", f"{usage.unmetered_call_count:,}"),
        ("calls without a known price", f"{usage.unpriced_call_count:,}"),
    ]


def _maps(
    aggregator: ReportAggregator, models: Sequence[str], scale: tuple[float, float]
) -> Iterator[tuple[str, str, HeatMap]]:
    measures = aggregator.measures()
    if len(measures) > 1 and len(models) > 0:
        cells = {
            (measure, model): _value(aggregator.by_model[model, measure])
            for model, measure in aggregator.by_model
        }
        note = "The mean of the judgements with a value. A dash: no judgement has a value."
        if odd := _off_scale(cells, scale):
            note += f" Without colour: not on the scale of {scale[0]:g} to {scale[1]:g}."
        yield "Criterion by model", note, heat_map(measures, models, cells, scale, odd)
    for name, sums in sorted(aggregator.shown_groups().items()):
        values = sorted({value for value, _ in sums})
        cells = {key: _value(of_cell) for key, of_cell in sums.items()}
        note = f"The same measure as the leaderboard's, by {name}."
        yield f"{name.capitalize()} by model", note, heat_map(values, models, cells, scale)


def _value(sums: SumAccumulator) -> Value:
    return Value(sums.mean(), sums.judged, sums.judgements)


def _off_scale(cells: dict[tuple[str, str], Value], scale: tuple[float, float]) -> set[str]:
    """The measures with a mean outside of the scale."""
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
