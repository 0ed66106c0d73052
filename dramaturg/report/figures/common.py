"""The figures of all kinds: opening sentence, leaderboard, abstentions, failures, judges, usage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from dramaturg.api.evaluation.v1.summary_pb2 import JudgeFigures, ModelDifference, Summary
from dramaturg.kinds import find_summary_kind
from dramaturg.report.charts import bars, interval_of
from dramaturg.report.figures.judge_comparisons import comparison_sections
from dramaturg.report.tables import (
    ABSENT,
    INTERVAL,
    RELATIVE,
    SHARE,
    Cell,
    Column,
    Scale,
    Section,
    Table,
    columns,
    count,
    figure,
    format_cost,
    name_cell,
    p_sentence,
    p_value,
    percent,
    points,
    samples_link,
    words,
)
from dramaturg.results.gold_answers import describe_missing

SIGNIFICANT = 0.05
"""Adjusted p-values below are called significant."""

_HASH_LENGTH = 12
_USAGE = "Cost and tokens"


def percent_of(value: float | None) -> str:
    """A share with one digit."""
    return percent(value, 1)


def mean_lead(summary: Summary) -> str:
    """The sentence of a kind that has none of its own."""
    measure = summary.leaderboard_measure or "all measures"
    return ranking_lead(summary, lambda entry: f"has a mean of {figure(entry.mean, 3)} ({measure})", figure)


def ranking_lead(
    summary: Summary,
    phrase: Callable[[LeaderboardEntry], str],
    show: Callable[[float | None], str],
) -> str:
    """A sentence on the first model: its mean, interval, abstentions, and the difference to the second.

    Args:
        summary: The summary.
        phrase: The mean of an entry in words, to follow the model's name.
        show: Formats the ends of the interval.
    """
    ranked = [entry for entry in summary.leaderboard if entry.rank]
    if not ranked:
        return "No model is ranked: too few judgements have a value."
    first = ranked[0]
    text = f"{_model(first.model)} {phrase(first)}"
    if first.HasField("lower"):
        text += f" [{show(first.lower)}, {show(first.upper)}]".replace(" %,", ",").replace(" %]", "]")
    missing = 1 - first.judged_count / first.judgement_count
    text += f"; {percent(missing)} abstained" if missing else "; none abstained"
    differences = {one.model: one for one in summary.model_differences}
    if len(ranked) > 1 and ranked[1].model in differences:
        text += f"; {_difference(differences[ranked[1].model])}"
    return f"{text}."


def _difference(found: ModelDifference) -> str:
    if not found.HasField("adjusted_p_value"):
        return f"the difference to {_model(found.model)} cannot be tested"
    significant = "significant" if found.adjusted_p_value < SIGNIFICANT else "not significant"
    return f"the difference to {_model(found.model)} is {significant} ({p_sentence(found.adjusted_p_value)})"


def _model(name: str) -> str:
    return name or "The default model"


def leaderboard(summary: Summary, module: Any) -> Section:
    """The models with their intervals drawn, ranked first, then unranked ones."""
    show: Callable[[float | None], str] = getattr(module, "show_mean", lambda value: figure(value, 3))
    scale: Scale = module.scale(summary) if hasattr(module, "scale") else SHARE
    entries = summary.leaderboard
    differences = {one.model: one for one in summary.model_differences}
    heads = ["mean", f"{show(scale[0])} to {show(scale[1])}", INTERVAL, "lowest", "highest"]
    heads += ["judged", "coverage", *(["difference to first", "p", "ranks"] if differences else [])]
    rows = [_entry_row(summary, entry, scale, show, differences) for entry in entries]
    table = Table(
        "Models by rank",
        [
            Column("rank"),
            Column("model", number=False),
            *map(Column, heads),
            Column("abstentions", number=False),
        ],
        rows,
        heads=2,
    )
    kind = find_summary_kind(summary)
    measure = summary.leaderboard_measure
    note = kind.results.ranking if kind else ""
    if kind and kind.results.is_setup(measure):
        note += f" In the setup {measure}; other setups have measures of their own."
    note += (
        " The interval is the 95 % confidence interval of the mean, clustered by sample. Abstentions are in"
        " no mean; lowest and highest are the means with every abstention at that end of the scale."
    )
    if differences:
        note += (
            " Differences are paired by sample; p, intervals and ranks hold for all pairs of models together."
            f" Models with a p of {SIGNIFICANT} or more cannot be told apart from the first."
            f"{' pp: percentage points.' if show(1).endswith('%') else ''}"
        )
    unranked = [entry.model or "(unnamed)" for entry in entries if not entry.rank]
    share = percent(summary.options.minimum_coverage)
    lines = []
    if unranked:
        lines.append(f"Unranked, because their coverage is below {share}: {', '.join(unranked)}.")
    if missing := describe_missing(summary.scripts.gold_answers):
        lines.append(f"{missing}.")
    return Section("Leaderboard", [table], note.strip(), lines)


def _entry_row(
    summary: Summary,
    entry: LeaderboardEntry,
    scale: Scale,
    show: Callable[[float | None], str],
    differences: Mapping[str, ModelDifference],
) -> Sequence[Cell]:
    mean = entry.mean if entry.HasField("mean") else None
    bounds = (entry.lower, entry.upper) if entry.HasField("lower") else None
    interval = f"{show(bounds[0])} to {show(bounds[1])}" if bounds else ABSENT
    drawn = Cell(f"{show(mean)}, {interval}", interval=interval_of(mean, bounds, scale))
    measure = {"measure": summary.leaderboard_measure} if summary.leaderboard_measure else {}
    link = samples_link(model=entry.model, **measure)
    cells = [
        Cell(str(entry.rank) if entry.rank else "unranked"),
        name_cell(entry.model, link),
        Cell(show(mean), value=mean),
        drawn if drawn.interval else Cell(ABSENT),
        Cell(interval),
        Cell(show(entry.mean_lowest if entry.HasField("mean_lowest") else None)),
        Cell(show(entry.mean_highest if entry.HasField("mean_highest") else None)),
        Cell(f"{entry.judged_count:,} of {entry.judgement_count:,}", link),
        Cell(percent_of(entry.coverage)),
    ]
    if differences:
        cells += _difference_cells(differences.get(entry.model), show)
        ranks = f"{entry.rank_lower} to {entry.rank_upper}" if entry.HasField("rank_lower") else ""
        cells.append(Cell(ranks))
    abstained = ", ".join(
        f"{number:,} {words(name)}" for name, number in sorted(entry.abstentions_by_reason.items())
    )
    cells.append(Cell(abstained, samples_link(model=entry.model, outcome="abstain") if abstained else ""))
    return cells


def _difference_cells(found: ModelDifference | None, show: Callable[[float | None], str]) -> Sequence[Cell]:
    if found is None or not found.difference.HasField("value"):
        return [Cell(""), Cell("")]
    value = found.difference.value
    text = f"{'−' if value < 0 else '+'}{points(show(abs(value)))}"
    title = ""
    if found.difference.HasField("lower"):
        ends = (points(show(end)) for end in (found.difference.lower, found.difference.upper))
        title = f"95 % interval {' to '.join(ends)}"
    p = p_value(found.adjusted_p_value if found.HasField("adjusted_p_value") else None)
    return [Cell(text, title=title), Cell(p, title=found.test)]


def general_sections(summary: Summary) -> Iterator[Section]:
    """Abstentions, failures, judges, usage, and figures that could not be computed."""
    if summary.abstentions_by_reason:
        total = summary.judgement_count
        note = f"Abstentions by reason, of {total:,} judgements."
        rows = _reason_rows(summary.abstentions_by_reason, total, lambda reason: samples_link(reason=reason))
        yield Section("Abstentions", [_reason_table("Abstentions by reason", rows)], note)
    if summary.failures_by_reason:
        failed = samples_link(outcome="failed")
        rows = _reason_rows(summary.failures_by_reason, summary.sample_count, lambda _: failed)
        note = f"Samples without a result by reason, of {summary.sample_count:,} samples."
        yield Section("Failed samples", [_reason_table("Failed samples by reason", rows)], note)
    if summary.model_failures:
        note = (
            "Outputs of models under test that are refusals, empty or cut off. They count against the model."
        )
        yield Section("Unusable outputs", [_failures(summary)], note)
    if summary.judges:
        yield Section("Judges", [_judges(summary.judges)], "As their answers state them.")
    yield from comparison_sections(summary)
    yield Section(_USAGE, [_usage(summary.usage)])
    if summary.notices:
        yield Section("Limits of these figures", lines=[_sentence(one) for one in summary.notices])
    if summary.problems:
        yield Section("Figures that are missing", lines=[_sentence(one) for one in summary.problems])


def _sentence(text: str) -> str:
    whole = text[:1].upper() + text[1:]
    return whole if whole.endswith((".", "?", "!")) else f"{whole}."


def missing_gold_answers(figures: GoldAnswerFigures) -> Iterator[Section]:
    """The samples that were judged without the gold answer that they asked for; none if there are none."""
    if figures.missing_count:
        rows = _reason_rows(figures.missing_by_reason, figures.sample_count, None)
        note = (
            "Samples that were judged without a gold answer, because it could not be written, by reason, of "
            f"{figures.sample_count:,} samples that asked for one."
        )
        yield Section("Missing gold answers", [_reason_table("Missing gold answers by reason", rows)], note)


def _reason_rows(
    counts: Mapping[str, int], total: int, link_of: Callable[[str], str] | None
) -> Sequence[Sequence[Cell]]:
    rows = []
    for bar in bars(counts, total):
        link = link_of(bar.name) if link_of else ""
        drawn = Cell(f"{bar.count:,}", interval=interval_of(bar.length, (0, bar.length), (0, 100)))
        rows.append([Cell(words(bar.name)), count(bar.count, link), Cell(percent_of(bar.share)), drawn])
    return rows


def _reason_table(caption: str, rows: Sequence[Sequence[Cell]]) -> Table:
    return Table(caption, columns("reason", figures=("count", "share", RELATIVE)), rows)


def _failures(summary: Summary) -> Table:
    rows = [
        [
            name_cell(one.model, samples_link(model=one.model)),
            Cell(words(one.reason)),
            count(one.judgement_count),
        ]
        for one in summary.model_failures
    ]
    return Table("Unusable outputs by model", columns("model", "reason", figures=("judgements",)), rows)


def _judges(judges: Sequence[JudgeFigures]) -> Table:
    rows = []
    for one in judges:
        prompts = ", ".join(f"{name} {digest[:_HASH_LENGTH]}" for name, digest in sorted(one.prompts.items()))
        own = f"{one.name} {one.version}".strip()
        abstained = one.abstention_count / one.judgement_count if one.judgement_count else None
        rows.append(
            [
                Cell(one.role),
                name_cell(one.judge),
                Cell(own),
                Cell(one.model),
                Cell(prompts),
                count(one.judgement_count),
                Cell(f"{one.abstention_count:,} ({percent(abstained)})"),
            ]
        )
    names = ("role", "judge", "name and version", "model", "prompts")
    return Table("Judges", columns(*names, figures=("judgements", "abstained")), rows, heads=2)


def _usage(usage: Usage) -> Table:
    bound = " (calls with a known price only)" if usage.unpriced_call_count else ""
    always = [
        (f"cost{bound}", format_cost(usage)),
        ("prompt tokens", f"{usage.prompt_token_count:,}"),
        ("completion tokens", f"{usage.completion_token_count:,}"),
        ("calls answered by a provider", f"{usage.provider_call_count:,}"),
    ]
    others = [
        ("prompt tokens served from the provider's cache", usage.cached_prompt_token_count),
        ("calls answered from the ledger, at no cost", usage.cache_hit_count),
        ("failed attempts that were retried", usage.retried_call_count),
        ("completions bought and not used", usage.unused_completion_count),
        ("calls without token counts", usage.unmetered_call_count),
        ("tokens of such calls, estimated upper bound", usage.estimated_token_count),
        ("calls without a known price", usage.unpriced_call_count),
    ]
    rows = [*always, *((name, f"{number:,}") for name, number in others if number)]
    return Table(
        _USAGE, columns("usage", figures=("amount",)), [[Cell(name), Cell(text)] for name, text in rows]
    )
