"""The page that compares results with a baseline: what got worse and better, and what changed in the setup.

The differences and tests are those of ``alignment.v1.CompareRunsResponse``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dramaturg.api.alignment.v1.compare_pb2 import CompareRunsResponse, PolicyComparison, RunComparison
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.report.figures.common import SIGNIFICANT
from dramaturg.report.page import SAMPLES_SHOWN, Content, Heading, render_page
from dramaturg.report.tables import (
    ABSENT,
    Cell,
    Column,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    format_cost,
    interval_cell,
    name_cell,
    p_sentence,
    p_value,
    percent,
    points,
    samples_link,
    value_of,
    words,
)
from dramaturg.report.views.model import SampleView
from dramaturg.report.views.sample import view
from dramaturg.results.setups import setup_changes, setups_of

LISTED_FLIPS = 100
"""The number of changes of each direction that are listed; all are in the samples."""

OPEN_FLIPS = 20
"""The number of these that are not folded."""

WORSE, BETTER, CHANGED = "worse", "better", "changed"
"""The directions of a change. CHANGED: to or from an abstention."""

_HASH_LENGTH = 12


@dataclass(frozen=True)
class Flip:
    """A judgement that differs from that of the baseline."""

    run: str
    """The name of the result."""
    sample: str
    subject: str
    aspect: str
    before: str
    after: str
    direction: str
    """WORSE, BETTER or CHANGED."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of results with a baseline."""

    runs: Sequence[str]
    """The names of the results, the baseline first."""
    summaries: Mapping[str, Summary]
    response: CompareRunsResponse
    flips: Sequence[Flip]
    value: str
    """What a value says, in words, e.g. "passed"."""
    shares: bool
    """Whether values are verdicts, whose means are shares."""
    left_out: Sequence[str] = ()
    """Sentences on items that are in no figure."""


def render_comparison(
    title: str,
    comparison: Comparison,
    samples: Mapping[str, Iterable[RunSample]],
    limit: int = SAMPLES_SHOWN,
    *,
    total: int | None = None,
) -> Iterator[str]:
    """Renders the page in pieces.

    Args:
        title: The title.
        comparison: The comparison.
        samples: The samples of each result. Those of the same id are shown together.
        limit: The maximum number of samples shown one by one.
        total: The number of samples that the page could show. None: all of them.
    """
    first, *others = comparison.runs
    heading = Heading(
        title, [("baseline", first), ("compared", ", ".join(others))], notes=comparison.left_out
    )
    paired = _paired(comparison, samples)
    if total is None:
        total = max(summary.sample_count for summary in comparison.summaries.values())
    content = Content(_lead(comparison), _tiles(comparison), list(_sections(comparison)))
    yield from render_page(heading, content, paired, total, limit)


def _whole(comparison: Comparison) -> Iterator[tuple[RunComparison, PolicyComparison]]:
    for one in comparison.response.comparisons:
        if not one.group:
            yield one, _policy(comparison, one)


def _policy(comparison: Comparison, one: RunComparison) -> PolicyComparison:
    wanted = comparison.response.abstention_policy
    return next(part for part in one.policies if part.policy == wanted)


def _lead(comparison: Comparison) -> str:
    sentences = []
    for one, part in _whole(comparison):
        text = f"{one.system} against {comparison.runs[0]}: "
        text += f"{part.worse_count:,} of {one.item_count:,} judgements got worse and "
        text += f"{part.better_count:,} better"
        abstained = sum(flip.direction == CHANGED for flip in comparison.flips if flip.run == one.system)
        if abstained:
            text += f", {abstained:,} changed to or from an abstention"
        value = value_of(part.difference)
        if value is not None:
            text += f"; the difference of {_signed(value, comparison).replace(' pp', ' percentage points')}"
            if part.HasField("adjusted_p_value"):
                surely = "is" if part.adjusted_p_value < SIGNIFICANT else "is not"
                text += f" {surely} significant ({p_sentence(part.adjusted_p_value)})"
        sentences.append(f"{text}.")
    if changes := _changes(comparison):
        return " ".join([f"The setup changed: {'; '.join(changes)}.", *sentences])
    return " ".join([*sentences, "The judges are the same."])


def _signed(value: float, comparison: Comparison) -> str:
    sign = "−" if value < 0 else "+"
    return f"{sign}{points(_show(comparison, abs(value)))}"


def _show(comparison: Comparison, value: float | None) -> str:
    return percent(value, 1) if comparison.shares else figure(value)


def _tiles(comparison: Comparison) -> Sequence[tuple[str, str]]:
    counts = {way: sum(one.direction == way for one in comparison.flips) for way in (WORSE, BETTER, CHANGED)}
    return [
        ("got worse", f"{counts[WORSE]:,}"),
        ("got better", f"{counts[BETTER]:,}"),
        ("to or from an abstention", f"{counts[CHANGED]:,}"),
    ]


def _sections(comparison: Comparison) -> Iterator[Section]:
    for direction, title in (
        (WORSE, "Got worse"),
        (BETTER, "Got better"),
        (CHANGED, "Abstentions that changed"),
    ):
        flips = [one for one in comparison.flips if one.direction == direction]
        if flips:
            listed = flips[:LISTED_FLIPS]
            note = f"The first {len(listed):,} of {len(flips):,}." if len(listed) < len(flips) else ""
            tables = [_flips(title, listed[:OPEN_FLIPS])]
            if rest := listed[OPEN_FLIPS:]:
                tables.append(_flips(f"{title}, continued", rest, folded=f"{len(rest):,} more"))
            yield Section(title, tables, note)
    yield Section(
        "Differences",
        [_differences(comparison)],
        f"The share or mean of what was {comparison.value}, over judgements that both results have, less "
        "that of the baseline. p is that of the paired test, adjusted for the number of comparisons (Holm)."
        f"{' pp: percentage points.' if comparison.shares else ''}",
    )
    yield Section(
        "Setup", [_judges(comparison)], "A mark says that a judge differs from that of the baseline."
    )
    yield Section("Results", [_results(comparison)])


def _flips(caption: str, flips: Sequence[Flip], folded: str = "") -> Table:
    rows = [
        [
            Cell(one.sample, samples_link(q=one.sample, **{f"tag.{one.direction}": one.aspect})),
            name_cell(one.subject),
            Cell(one.aspect),
            Cell(one.run),
            Cell(words(one.before)),
            Cell(words(one.after)),
        ]
        for one in flips
    ]
    return Table(
        caption, columns("sample", "of", "by", "result", "baseline", "now"), rows, heads=2, folded=folded
    )


def _differences(comparison: Comparison) -> Table:
    parts = [(one, _policy(comparison, one)) for one in comparison.response.comparisons]
    ends = [abs(end) for _, part in parts for end in (part.difference.lower, part.difference.upper)]
    reach = max([0.01, *ends])
    rows = []
    for one, part in parts:
        p = p_value(part.adjusted_p_value if part.HasField("adjusted_p_value") else None)
        tags = {name: {name: one.group} for name in (WORSE, BETTER)} if one.group else {}
        rows.append(
            [
                Cell(one.system),
                Cell(one.group or "all"),
                estimate_cell(part.baseline_mean, show=lambda value: _show(comparison, value)),
                estimate_cell(part.system_mean, show=lambda value: _show(comparison, value)),
                Cell(
                    ABSENT
                    if value_of(part.difference) is None
                    else _signed(part.difference.value, comparison)
                ),
                interval_cell(
                    part.difference, (-reach, reach), lambda value: points(_show(comparison, value))
                ),
                count(part.worse_count, samples_link(tags[WORSE]) if tags else ""),
                count(part.better_count, samples_link(tags[BETTER]) if tags else ""),
                Cell(p),
                count(one.item_count),
            ]
        )
    drawn = f"95 % interval, ±{points(_show(comparison, reach))}"
    heads = ("baseline", "now", "difference", drawn, "worse", "better", "p", "judgements")
    return Table("Differences to the baseline", columns("result", "by", figures=heads), rows, heads=2)


def _changes(comparison: Comparison) -> Sequence[str]:
    return setup_changes({run: setups_of(comparison.summaries[run].judges) for run in comparison.runs})


def _judges(comparison: Comparison) -> Table:
    baseline = setups_of(comparison.summaries[comparison.runs[0]].judges)
    rows = []
    for run in comparison.runs:
        for one in sorted(setups_of(comparison.summaries[run].judges)):
            prompts = ", ".join(f"{name} {digest[:_HASH_LENGTH]}" for name, digest in one.prompts)
            named = f"{one.name} {one.version}".strip()
            same = "" if one in baseline or not one.name else "changed"
            cells = (run, one.role, one.judge, named, one.model, prompts, same)
            rows.append([Cell(text) for text in cells])
    return Table(
        "Judges of each result",
        columns("result", "role", "judge", "name and version", "model", "prompts", "against the baseline"),
        rows,
        heads=3,
    )


def _results(comparison: Comparison) -> Table:
    rows = []
    for run in comparison.runs:
        summary = comparison.summaries[run]
        models = ", ".join(entry.model or "(unnamed)" for entry in summary.leaderboard)
        rows.append(
            [
                Cell(run),
                Cell(models),
                count(summary.sample_count),
                count(summary.failed_sample_count),
                count(summary.judgement_count),
                count(sum(summary.abstentions_by_reason.values())),
                Cell(format_cost(summary.usage)),
            ]
        )
    heads = ("samples", "failed", "judgements", "abstained", "cost")
    return Table("Counts and cost", [*columns("result", "models"), *map(Column, heads)], rows)


def _paired(comparison: Comparison, samples: Mapping[str, Iterable[RunSample]]) -> Iterator[SampleView]:
    """The samples of the same id in all results as one each, with what changed as tags."""
    tags: dict[str, dict[tuple[str, str], None]] = {}
    parts: dict[str, dict[str, dict[tuple[str, str], None]]] = {}
    for one in comparison.flips:
        change = one.direction, one.aspect
        tags.setdefault(one.sample, {})[change] = None
        parts.setdefault(one.sample, {}).setdefault(one.subject, {})[change] = None
    waiting: dict[str, dict[str, SampleView]] = {}
    readers = {run: iter(some) for run, some in samples.items()}
    place = 0
    while readers:
        for run, reader in list(readers.items()):
            sample = next(reader, None)
            if sample is None:
                del readers[run]
                continue
            shown = view(sample)
            key = shown.sample_id or shown.title
            found = waiting.setdefault(key, {})
            found[run] = shown
            if len(found) == len(samples):
                changes = tags.get(key, {}), parts.get(key, {})
                yield _merged(waiting.pop(key), comparison.runs, *changes, place)
                place += 1
    for key, found in waiting.items():
        yield _merged(found, comparison.runs, tags.get(key, {}), parts.get(key, {}), place)
        place += 1


def _merged(
    found: Mapping[str, SampleView],
    runs: Sequence[str],
    changes: Iterable[tuple[str, str]],
    parts: Mapping[str, Iterable[tuple[str, str]]],
    place: int,
) -> SampleView:
    whole = [(run, found[run]) for run in runs if run in found]
    _, first = next((one for one in whole if not one[1].failed), whole[0])
    subjects = [
        replace(
            subject,
            title=f"{run}: {subject.title}".rstrip(": "),
            tags=[*subject.tags, *parts.get(subject.title, parts.get(subject.model, ()))],
        )
        for run, one in whole
        for subject in one.subjects
    ]
    errors = [f"{run}: {one.error}" for run, one in whole if one.error]
    missing = [f"{run}: the sample is missing" for run in runs if run not in found]
    return replace(
        first,
        index=place,
        subjects=sorted(subjects, key=lambda subject: subject.model),
        error="; ".join([*errors, *missing]),
        failed=bool(errors),
        filters=[*first.filters, *changes],
        disagreement="; ".join(f"{direction} by {aspect}" for direction, aspect in changes),
    )
