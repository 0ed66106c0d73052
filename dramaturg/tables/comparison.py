"""What got worse and better than in a baseline, and what changed in the setup, as sections of tables.

The differences and tests are those of ``alignment.v1.CompareRunsResponse``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dramaturg.api.alignment.v1.compare_pb2 import CompareRunsResponse, PolicyComparison, RunComparison
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.results.setups import setup_changes, setups_of
from dramaturg.tables.cells import (
    count,
    estimate_cell,
    figure,
    format_cost,
    name_cell,
    optional,
    p_sentence,
    p_value,
    percent,
    points,
    samples_link,
    value_of,
    words,
)
from dramaturg.tables.common import SIGNIFICANT
from dramaturg.tables.model import ABSENT, Cell, Column, Section, Table, columns

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


def _whole(comparison: Comparison) -> Iterator[tuple[RunComparison, PolicyComparison]]:
    for one in comparison.response.comparisons:
        if not one.group:
            yield one, _policy(comparison, one)


def _policy(comparison: Comparison, one: RunComparison) -> PolicyComparison:
    wanted = comparison.response.abstention_policy
    return next(part for part in one.policies if part.policy == wanted)


def lead(comparison: Comparison) -> str:
    """The sentences that open the page."""
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


def change_counts(comparison: Comparison) -> Sequence[tuple[str, str]]:
    """How many judgements changed in each direction."""
    counts = {way: sum(one.direction == way for one in comparison.flips) for way in (WORSE, BETTER, CHANGED)}
    return [
        ("got worse", f"{counts[WORSE]:,}"),
        ("got better", f"{counts[BETTER]:,}"),
        ("to or from an abstention", f"{counts[CHANGED]:,}"),
    ]


def sections(comparison: Comparison) -> Iterator[Section]:
    """The judgements that differ, the differences with their tests, the setups, and counts."""
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
    names = ("sample", "of")
    table = Table(caption, columns(*names, texts=("by", "result", "baseline", "now")), heads=2, folded=folded)
    for one in flips:
        table.add_row(
            Cell(one.sample, link=samples_link(q=one.sample, **{f"tag.{one.direction}": one.aspect})),
            name_cell(one.subject),
            one.aspect,
            one.run,
            words(one.before),
            words(one.after),
        )
    return table


def _differences(comparison: Comparison) -> Table:
    parts = [(one, _policy(comparison, one)) for one in comparison.response.comparisons]
    ends = [abs(end) for _, part in parts for end in (part.difference.lower, part.difference.upper)]
    reach = max([0.01, *ends])
    heads = (
        "baseline",
        "now",
        Column("difference", interval=f"±{points(_show(comparison, reach))}"),
        "worse",
        "better",
        "p",
        "judgements",
    )
    table = Table("Differences to the baseline", columns("result", "by", figures=heads))
    for one, part in parts:
        tags = {name: {name: one.group} for name in (WORSE, BETTER)} if one.group else {}
        p = optional(part, "adjusted_p_value")
        table.add_row(
            one.system,
            one.group or "all",
            estimate_cell(part.baseline_mean, show=lambda value: _show(comparison, value)),
            estimate_cell(part.system_mean, show=lambda value: _show(comparison, value)),
            replace(
                estimate_cell(
                    part.difference,
                    scale=(-reach, reach),
                    show=lambda value: points(_show(comparison, value)),
                ),
                text=ABSENT
                if value_of(part.difference) is None
                else _signed(part.difference.value, comparison),
            ),
            count(part.worse_count, samples_link(tags[WORSE]) if tags else ""),
            count(part.better_count, samples_link(tags[BETTER]) if tags else ""),
            Cell(p_value(p), p),
            count(one.item_count),
        )
    return table


def _changes(comparison: Comparison) -> Sequence[str]:
    return setup_changes({run: setups_of(comparison.summaries[run].judges) for run in comparison.runs})


def _judges(comparison: Comparison) -> Table:
    baseline = setups_of(comparison.summaries[comparison.runs[0]].judges)
    names = ("result", "role", "judge")
    texts = ("name and version", "model", "prompts", "against the baseline")
    table = Table("Judges of each result", columns(*names, texts=texts), heads=3)
    for run in comparison.runs:
        for one in sorted(setups_of(comparison.summaries[run].judges)):
            prompts = ", ".join(f"{name} {digest[:_HASH_LENGTH]}" for name, digest in one.prompts)
            named = f"{one.name} {one.version}".strip()
            same = "" if one in baseline or not one.name else "changed"
            table.add_row(run, one.role, one.judge, named, one.model, prompts, same)
    return table


def _results(comparison: Comparison) -> Table:
    heads = ("samples", "failed", "judgements", "abstained", "cost")
    table = Table("Counts and cost", columns("result", texts=("models",), figures=heads), heads=1)
    for run in comparison.runs:
        summary = comparison.summaries[run]
        table.add_row(
            run,
            ", ".join(entry.model or "(unnamed)" for entry in summary.leaderboard),
            count(summary.sample_count),
            count(summary.failed_sample_count),
            count(summary.judgement_count),
            count(sum(summary.abstentions_by_reason.values())),
            Cell(format_cost(summary.usage), optional(summary.usage, "cost_usd")),
        )
    return table
