"""The report page: a summary and its samples as one self-contained HTML document, rendered in parts.

The samples of a page as data: an index that filters read, and compressed blocks of whole samples. The page's
script inflates a block when a sample of it is opened, so that a page of many samples opens quickly and stays
small enough for e-mail.

The figures are those of the summary: nothing is computed here. Judged texts are untrusted: they stand in the
page as escaped text or as data, and a content security policy allows only the page's own script and style,
and no request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_FAILED, RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.judge.provenance import prompt_texts
from dramaturg.plots.tables import csv, latex
from dramaturg.report import charts, tokens
from dramaturg.report.sample_view import SampleView, SubjectView
from dramaturg.report.views import abbreviated, view
from dramaturg.results.coverage import NOT_ASKED, coverage
from dramaturg.results.files import read_results
from dramaturg.results.frames import compact_json
from dramaturg.tables import lead, sections
from dramaturg.tables.common import standing
from dramaturg.tables.model import ABSENT, Section, Table, format_cost, named, percent, samples_link


def files_of(tables: Iterable[Table], draw: Callable[[Table], str]) -> Mapping[str, Mapping[str, str]]:
    """The text of the files of each table, by the name and the ending of the file.

    Args:
        tables: The tables.
        draw: Returns the chart of a table as SVG. Empty: it has none.
    """
    return {
        table.name: {
            # The byte order mark lets spreadsheets read CSV as UTF-8.
            "csv": f"\ufeff{csv(table)}",
            "tex": latex(table),
            **({"svg": chart} if (chart := draw(table)) else {}),
        }
        for table in tables
    }


BLOCK_SIZE = 50
"""The number of samples of a block."""

FAILED, DISAGREEMENT = 1, 2
"""The flags of a sample in the index."""

_OUTCOMES = {"pass": "p", "fail": "f", "number": "n"}
_FIRST_REASON = ord("A")
_TITLE_LENGTH = 300


class _Names:
    """Numbers values in order of first occurrence."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value."""
        return self._numbers.setdefault(value, len(self._numbers))

    def values(self) -> Sequence[Any]:
        """The values by number."""
        return list(self._numbers)


class SampleIndex:
    """What filters need of each sample: names, outcomes, tags.

    A sample is [index, title, id, flags, tags, models, kinds of its subjects, outcomes], a kind of subject
    [model, measures, tags]. Names are numbers; so are lists of numbers and kinds, which many samples share.
    The outcomes of all subjects follow one another, with a letter for each measure: p, f, n (a number), or
    for an abstention a capital letter that numbers its reason.
    """

    def __init__(self) -> None:
        self._models, self._measures, self._reasons = _Names(), _Names(), _Names()
        self._tags, self._kinds, self._lists = _Names(), _Names(), _Names()
        self._samples: list[Sequence[Any]] = []

    def add(self, shown: SampleView) -> None:
        """Adds a sample."""
        failed = FAILED if shown.failed else 0
        tags = dict.fromkeys((name, value) for name, value in (*shown.tags, *shown.filters))
        self._samples.append(
            [
                shown.index,
                shown.title[:_TITLE_LENGTH],
                shown.sample_id,
                failed | (DISAGREEMENT if shown.disagreement else 0),
                self._list(map(self._tags.number, tags)),
                self._list(map(self._models.number, dict.fromkeys(shown.models))),
                self._list(map(self._kind, shown.subjects)),
                "".join(map(self._outcomes, shown.subjects)),
            ]
        )

    def json(self) -> str:
        """The index as JSON that may stand in a script element."""
        index = {
            "models": self._models.values(),
            "measures": self._measures.values(),
            "reasons": self._reasons.values(),
            "tags": self._tags.values(),
            "kinds": self._kinds.values(),
            "lists": self._lists.values(),
            "blockSize": BLOCK_SIZE,
            "samples": self._samples,
        }
        return compact_json(index).replace("<", "\\u003c")

    def _list(self, numbers: Iterable[int]) -> int:
        return self._lists.number(tuple(numbers))

    def _kind(self, subject: SubjectView) -> int:
        measures = self._list(self._measures.number(one.measure) for one in subject.judgements)
        tags = self._list(self._tags.number(tuple(pair)) for pair in subject.tags)
        return self._kinds.number((self._models.number(subject.model), measures, tags))

    def _outcomes(self, subject: SubjectView) -> str:
        return "".join(
            _OUTCOMES.get(one.outcome) or chr(_FIRST_REASON + self._reasons.number(one.reason))
            for one in subject.judgements
        )


def blocks(samples: Iterable[SampleView], index: SampleIndex) -> Iterator[str]:
    """Yields the blocks, and adds the samples to the index.

    A block is base64 of deflated JSON Lines, a view of a sample on each line. Defaults are left out.
    """
    lines: list[str] = []
    for shown in samples:
        index.add(shown)
        lines.append(compact_json(_without_defaults(asdict(shown))))
        if len(lines) == BLOCK_SIZE:
            yield pack("\n".join(lines))
            lines = []
    if lines:
        yield pack("\n".join(lines))


def pack(text: str) -> str:
    """A text as base64 of deflated UTF-8, which stands in a page as it is."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def _without_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_defaults(one) for key, one in value.items() if one or one == 0}
    if isinstance(value, list | tuple):
        return [_without_defaults(one) for one in value]
    return value


SAMPLES_SHOWN = 20_000
"""The default number of samples shown one by one."""

_TEMPLATES = Path(__file__).parent / "templates"
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


@dataclass(frozen=True)
class Heading:
    """The heading of the page."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    """Name and value pairs, e.g. ("run", its id)."""
    warning: str = ""
    """A warning shown at the top, e.g. that the run has not ended."""
    notes: Sequence[str] = ()
    """Sentences below the figures, e.g. on what a comparison leaves out."""


class Tile(NamedTuple):
    """One of the few figures that a reader needs first."""

    name: str
    value: str
    note: str = ""
    """What the value rests on."""


@dataclass(frozen=True)
class Content:
    """What stands between the heading and the samples."""

    lead: str
    """The sentence that opens the page."""
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    counts: Sequence[tuple[int, str]] = ()
    """What the figures rest on, as numbers and what they count."""
    samples_after: int = 0
    """The number of sections above the samples."""
    failures: str = ""
    """The model whose failures a reader looks at first. Empty: none."""


def render(
    heading: Heading, summary: Summary, samples: Iterable[RunSample], limit: int = SAMPLES_SHOWN
) -> Iterator[str]:
    """Renders the page in pieces.

    Args:
        heading: The heading.
        summary: The figures of all samples.
        samples: The samples; the first ``limit`` finished ones are shown. Consumed lazily.
        limit: The maximum number of samples shown one by one.
    """
    prompts: dict[str, str] = {}

    def finished() -> Iterator[SampleView]:
        for one in samples:
            if one.WhichOneof("result") or one.state == SAMPLE_STATE_FAILED:
                prompts.update(prompt_texts(one))
                yield view(one)

    ranked, _ = standing(summary)
    content = Content(
        lead(summary),
        _tiles(summary),
        list(sections(summary)),
        _counts(summary),
        samples_after=int(bool(summary.leaderboard)),
        failures=ranked[-1] if ranked else "",
    )
    yield from render_page(heading, content, finished(), summary.sample_count, limit, prompts)


def render_page(
    heading: Heading,
    content: Content,
    samples: Iterable[SampleView],
    total: int,
    limit: int = SAMPLES_SHOWN,
    prompts: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Renders a page of any content and samples, in pieces.

    Args:
        heading: The heading.
        content: What stands between the heading and the samples.
        samples: The samples. Consumed lazily.
        total: The number of samples.
        limit: The maximum number of samples shown one by one.
        prompts: The texts of the prompts by SHA-256. Read after the samples. None: they are not known.
    """
    style, script = stylesheet(), _read("page.js")
    tables = list(named(table for section in content.sections for table in section.tables))
    shown = min(limit, total)
    yield (
        environment()
        .get_template("page.html.j2")
        .render(
            title=heading.title,
            facts=heading.facts,
            warning=heading.warning,
            lead=content.lead,
            style=Markup(style),  # noqa: S704 -- our own file
            style_hash=_hash(style),
            script_hash=_hash(script),
            tiles=content.tiles,
            counts=content.counts,
            failures=content.failures,
            samples_after=content.samples_after,
            sections=content.sections,
            notes=heading.notes,
            shown=shown,
            total=total,
            version=version("dramaturg"),
        )
    )
    kept = pack(json.dumps(files_of(tables, _chart), ensure_ascii=False))
    yield f'<script type="text/plain" id="files">{kept}</script>\n'
    # The script and what the first screen needs stand before the other blocks, so that a browser shows the
    # samples while it still reads. The index is complete after the last block.
    index = SampleIndex()
    with TemporaryFile("w+", encoding="ascii") as packed:
        packed.writelines(f"{block}\n" for block in blocks(islice(samples, shown), index))
        packed.seek(0)
        yield _block(packed.readline())
        yield f'<script type="application/json" id="index">{index.json()}</script>\n'
        yield f"<script>{script}</script>\n"
        yield from map(_block, packed)
    if prompts:
        texts = {abbreviated(digest): text for digest, text in prompts.items()}
        kept = pack(json.dumps(texts, ensure_ascii=False))
        yield f'<script type="text/plain" id="prompts">{kept}</script>\n'
    yield "</body></html>\n"


def write_report(
    results: Path,
    out: Path,
    summary: Summary,
    *,
    title: str = "",
    warning: str = "",
    limit: int = SAMPLES_SHOWN,
) -> None:
    """Writes the report of the output of an evaluate command, in constant memory.

    Args:
        results: The folder of results, or one results file.
        out: The page; overwritten if it exists.
        summary: The figures of the results.
        title: The title of the page. Empty: "Evaluation" and the folder's name.
        warning: What the figures lack. Empty: nothing.
        limit: The maximum number of samples shown one by one.

    Raises:
        LineError: A line is not a result.
        OSError: A file cannot be read or written.
    """
    folder = results if results.is_dir() else results.parent
    heading = Heading(title or f"Evaluation {folder.name}", [("results", results.name)], warning)
    with out.open("w", encoding="utf-8", errors="replace") as file:
        for piece in render(heading, summary, read_results(results), limit):
            file.write(piece)


def visible(text: str) -> str:
    """A text whose control characters and marks of direction are shown as their code points."""
    return _INVISIBLE.sub(lambda found: f"[U+{ord(found[0]):04X}]", str(text))


def _block(line: str) -> str:
    return f'<script type="text/plain" class="block">{line.rstrip()}</script>\n' if line else ""


def _tiles(summary: Summary) -> Sequence[Tile]:
    samples, failed = summary.sample_count, summary.failed_sample_count
    share = coverage(samples - failed, samples, summary.judgement_count, summary.abstentions_by_reason)
    not_asked = sum(summary.abstentions_by_reason.get(reason, 0) for reason in NOT_ASKED)
    abstained = sum(summary.abstentions_by_reason.values()) - not_asked
    asked = summary.judgement_count - not_asked
    left_out = f"; {not_asked:,} do not count as asked for" if not_asked else ""
    ranked, tied = standing(summary)
    if tied:
        note = f"not told apart from {len(tied):,} of {len(ranked) - 1:,} others"
    else:
        note = f"of {len(ranked):,} models" if len(ranked) > 1 else ""
    usage = summary.usage
    return [
        Tile(
            "leader" if len(ranked) > 1 else "model", (ranked[0] or "(unnamed)") if ranked else ABSENT, note
        ),
        Tile(
            "coverage",
            percent(share, 1),
            f"{abstained:,} of {asked:,} judgements abstained{left_out}",
        ),
        Tile("cost", format_cost(usage), f"{usage.provider_call_count:,} model calls"),
    ]


def _counts(summary: Summary) -> Sequence[tuple[int, str]]:
    return [
        (summary.sample_count, "samples"),
        (summary.failed_sample_count, "without a result"),
        (summary.judgement_count, "judgements"),
    ]


def _chart(table: Table) -> str:
    """The chart of a table as SVG. Empty: it has none."""
    chart = charts.drawn_table(table)
    if chart is None:
        return ""
    return environment().get_template("chart.svg.j2").render(table=table, chart=chart)


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def environment(templates: Path = _TEMPLATES) -> Environment:
    """Renders the templates of a folder, and those of the report.

    Values are escaped, and invisible characters shown (``visible``).
    """
    made = Environment(
        loader=FileSystemLoader([templates, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    for function in charts.FILTERS:
        made.filters[function.__name__] = function
    made.globals["token"] = tokens.light
    made.globals["full_heat"] = charts.FULL_HEAT
    made.globals["samples_link"] = samples_link
    made.filters["slug"] = lambda text: re.sub(r"\W+", "-", text.lower()).strip("-")
    return made


def stylesheet() -> str:
    """The style sheet of the page: the tokens, and the rules that use them."""
    return tokens.style() + _read("page.css")


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
