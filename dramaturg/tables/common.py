"""The figures of all kinds: opening sentence, leaderboard, abstentions, failures, judges, shadows, usage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from dramaturg.api.evaluation.v1.summary_pb2 import JudgeComparison, JudgeFigures, ModelDifference, Summary
from dramaturg.kinds import find_summary_kind
from dramaturg.results.gold_answers import describe_missing
from dramaturg.tables.model import (
    ABSENT,
    SHARE,
    SHARES,
    SMALLEST_P,
    Cell,
    Column,
    Scale,
    Section,
    Table,
    columns,
    count,
    ends_of,
    estimate_cell,
    figure,
    fitted,
    format_cost,
    name_cell,
    optional,
    p_sentence,
    p_value,
    percent,
    points,
    samples_link,
    share_cell,
    words,
)

_NOTE = (
    "Equal pass rates are not agreement: judges with equal rates can differ on every item. The agreement is "
    "the share of equal verdicts of both."
)


def comparison_sections(summary: Summary) -> Iterator[Section]:
    """A section for every two judges."""
    for one in summary.judge_comparisons:
        title = f"{one.role}: {one.first_judge} and {one.second_judge}"
        unseen = [
            f"{amount:,} of {one.item_count:,} items were not seen by {one.second_judge}: {reason}."
            for reason, amount in sorted(one.unseen_by_reason.items())
        ]
        tables = [_agreement(one), _compared_judges(one), *([_flips(one)] if one.flips else [])]
        yield Section(title, tables, f"Over {one.item_count:,} items. {_NOTE}", unseen)


def _agreement(one: JudgeComparison) -> Table:
    rates = [Column(f"PASS of {judge}", detail=True) for judge in (one.first_judge, one.second_judge)]
    heads: Sequence[str | Column] = (
        "judged by both",
        Column("agreement", interval=SHARES),
        "kappa",
        *rates,
        "PASS to FAIL",
        "FAIL to PASS",
    )
    table = Table("Agreement by criterion", columns("criterion", figures=heads))
    for figures in one.figures:
        table.add_row(
            figures.criterion or "all",
            count(figures.judged_count),
            estimate_cell(figures.agreement),
            estimate_cell(figures.cohen_kappa, show=figure),
            estimate_cell(figures.first_pass_rate),
            estimate_cell(figures.second_pass_rate),
            count(figures.pass_to_fail_count),
            count(figures.fail_to_pass_count),
        )
    return table


def _compared_judges(one: JudgeComparison) -> Table:
    heads = ("assessments", "abstained", "cost", "tokens", "mean latency", "largest latency")
    table = Table("Cost and latency", columns("judge", figures=heads))
    for name, judge in ((one.first_judge, one.first), (one.second_judge, one.second)):
        table.add_row(
            name_cell(name),
            count(judge.assessment_count),
            count(sum(judge.abstentions_by_reason.values())),
            format_cost(judge.usage),
            count(judge.usage.prompt_token_count + judge.usage.completion_token_count),
            _seconds(optional(judge, "mean_latency_seconds")),
            _seconds(optional(judge, "largest_latency_seconds")),
        )
    return table


def _seconds(value: float | None) -> Cell:
    return Cell(ABSENT if value is None else f"{value:.3f} s", value)


def _flips(one: JudgeComparison) -> Table:
    names = ("sample", "candidate", "model", "criterion", one.first_judge, one.second_judge)
    caption = f"{len(one.flips):,} of {one.flip_count:,} verdicts that differ"
    table = Table(caption, columns(*names), heads=1, folded=caption)
    for flip in one.flips:
        table.add_row(
            name_cell(
                flip.sample_id or f"{flip.sample_index + 1}", samples_link(sample=str(flip.sample_index))
            ),
            flip.candidate_id,
            flip.model,
            flip.criterion,
            flip.first,
            flip.second,
        )
    return table


SIGNIFICANT = 0.05
"""Adjusted p-values below are called significant."""

_HASH_LENGTH = 12
_USAGE = "Cost and tokens"
_NAMED = 3
"""The most models that a sentence names."""


def mean_lead(summary: Summary) -> str:
    """The sentence of a kind that has none of its own."""
    measure = summary.leaderboard_measure or "all measures"
    return ranking_lead(summary, lambda entry: f"has a mean of {figure(entry.mean, 3)} ({measure})", figure)


def ranking_lead(
    summary: Summary,
    phrase: Callable[[LeaderboardEntry], str],
    show: Callable[[float | None], str],
    fault: Callable[[str], str] = lambda _: "",
) -> str:
    """Sentences on the first model, those that cannot be told apart from it, and the last one.

    Args:
        summary: The summary.
        phrase: The mean of an entry in words, to follow the model's name.
        show: Formats the ends of the interval, and differences.
        fault: The commonest fault of a model in words, to follow its name. Empty: it has none.
    """
    ranked = [entry for entry in summary.leaderboard if entry.rank]
    if not ranked:
        return "No model is ranked: too few judgements have a value."
    first, last = ranked[0], ranked[-1]
    leads = " leads: it" if len(ranked) > 1 else ""
    sentences = [f"{_model(first.model)}{leads} {phrase(first)}{_interval(first, show)}{_abstained(first)}"]
    models, tied = standing(summary)
    others = {one.model: one for one in summary.model_differences if one.model in models}
    if tied:
        named = _listed([_difference(others[model], show) for model in tied])
        sentences.append(f"{named} cannot be told apart from it")
    elif others:
        whole = "Every other model" if len(others) > 1 else _model(next(iter(others)))
        most = max(one.adjusted_p_value for one in others.values())
        less = " or less" if len(others) > 1 and most >= SMALLEST_P else ""
        sentences.append(f"{whole} is behind it ({p_sentence(most)}{less})")
    if len(ranked) > 1:
        described = [f"is last: it {phrase(last)}"] if last.model not in tied else []
        described += [found] if (found := fault(last.model)) else []
        if described:
            sentences.append(f"{_model(last.model)} {' and '.join(described)}")
    return f"{'. '.join(sentences)}."


def standing(summary: Summary) -> tuple[Sequence[str], Sequence[str]]:
    """The ranked models, the first one first, and those that cannot be told apart from the first one."""
    ranked = [entry.model for entry in summary.leaderboard if entry.rank]
    tied = [one.model for one in summary.model_differences if one.model in ranked and not _is_behind(one)]
    return ranked, tied


def _listed(names: Sequence[str]) -> str:
    shown = [*names[:_NAMED], *([f"{len(names) - _NAMED:,} more"] if len(names) > _NAMED else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _interval(entry: LeaderboardEntry, show: Callable[[float | None], str]) -> str:
    if not entry.HasField("lower"):
        return ""
    return f" (95 % interval {ends_of(entry.lower, entry.upper, show)})"


def _abstained(entry: LeaderboardEntry) -> str:
    """Whose judgements abstained, with the number that they are of: those of other models are not meant."""
    missing = entry.judgement_count - entry.judged_count
    return f"; {missing:,} of its {entry.judgement_count:,} judgements abstained" if missing else ""


def _is_behind(found: ModelDifference) -> bool:
    return found.HasField("adjusted_p_value") and found.adjusted_p_value < SIGNIFICANT


def _difference(found: ModelDifference, show: Callable[[float | None], str]) -> str:
    """A model with its difference to the first one."""
    if not found.HasField("adjusted_p_value"):
        return f"{_model(found.model)} (not tested)"
    value = found.difference.value
    size = points(show(abs(value))).replace(" pp", " points")
    return f"{_model(found.model)} ({'−' if value < 0 else '+'}{size}, {p_sentence(found.adjusted_p_value)})"


def _model(name: str) -> str:
    return name or "The default model"


def show_mean(module: Any) -> Callable[[float | None], str]:
    """How a kind's module shows means; to three digits where it does not say."""
    show: Callable[[float | None], str] = getattr(module, "show_mean", lambda value: figure(value, 3))
    return show


def leaderboard(summary: Summary, module: Any) -> Section:
    """The models with their intervals, ranked first, then unranked ones."""
    show = show_mean(module)
    scale: Scale = module.scale(summary) if hasattr(module, "scale") else SHARE
    entries = summary.leaderboard
    differences = {one.model: one for one in summary.model_differences}
    drawn = [
        (one.mean, one.lower, one.upper, *(_extremes(one) or ())) for one in entries if one.HasField("lower")
    ]
    scale = fitted(scale, [value for one in drawn for value in one])
    compared = [Column(name, folded=True) for name in ("difference to first", "p", "ranks")]
    heads = [
        Column("mean", interval=ends_of(*scale, show)),
        Column("lowest", detail=True, folded=True),
        Column("highest", detail=True, folded=True),
        Column("judged", detail=True),
        Column("coverage"),
        *(compared if differences else []),
        Column("abstentions", number=False, detail=True, folded=True),
    ]
    rows = [_entry_row(summary, entry, scale, show, differences) for entry in entries]
    table = Table("Models by rank", [Column("rank"), Column("model", number=False), *heads], rows, heads=2)
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
        if tests := list(dict.fromkeys(one.test for one in differences.values() if one.test)):
            note += f" Test: {'; '.join(tests)}."
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
) -> Sequence[Cell | str]:
    mean = optional(entry, "mean")
    bounds = (entry.lower, entry.upper) if entry.HasField("lower") else None
    measure = {"measure": summary.leaderboard_measure} if summary.leaderboard_measure else {}
    link = samples_link(model=entry.model, **measure)
    ranks = f"{entry.rank_lower} to {entry.rank_upper}" if entry.HasField("rank_lower") else ""
    abstained = ", ".join(
        f"{number:,} {words(name)}" for name, number in sorted(entry.abstentions_by_reason.items())
    )
    return [
        str(entry.rank) if entry.rank else "unranked",
        name_cell(entry.model, link),
        Cell(
            show(mean),
            mean,
            bounds,
            ends_of(*bounds, show) if bounds else "",
            scale,
            judged=entry.judged_count,
            total=entry.judgement_count,
            extremes=_extremes(entry) if bounds else None,
        ),
        *(Cell(show(end), end) for end in (optional(entry, "mean_lowest"), optional(entry, "mean_highest"))),
        Cell(f"{entry.judged_count:,} of {entry.judgement_count:,}", link=link),
        share_cell(entry.coverage),
        *([*_difference_cells(differences.get(entry.model), show), ranks] if differences else []),
        Cell(abstained, link=samples_link(model=entry.model, outcome="abstain") if abstained else ""),
    ]


def _extremes(entry: LeaderboardEntry) -> tuple[float, float] | None:
    """The means with every abstention at either end of the scale. None: there are no abstentions."""
    lowest, highest = optional(entry, "mean_lowest"), optional(entry, "mean_highest")
    return None if lowest is None or highest is None or lowest == highest else (lowest, highest)


def _difference_cells(
    found: ModelDifference | None, show: Callable[[float | None], str]
) -> Sequence[Cell | str]:
    if found is None or not found.difference.HasField("value"):
        return ["", ""]
    difference = found.difference
    bounds = (difference.lower, difference.upper) if difference.HasField("lower") else None
    text = f"{'−' if difference.value < 0 else '+'}{points(show(abs(difference.value)))}"
    ends = ends_of(*bounds, lambda end: points(show(end))) if bounds else ""
    p = optional(found, "adjusted_p_value")
    return [Cell(text, difference.value, bounds, ends), Cell(p_value(p), p, note=f"test: {found.test}")]


def abstention_sections(summary: Summary) -> Iterator[Section]:
    """The section of abstentions by reason; none without abstentions."""
    if summary.abstentions_by_reason:
        total = summary.judgement_count
        note = f"Abstentions by reason, of {total:,} judgements."
        table = _reasons(
            "Abstentions by reason",
            summary.abstentions_by_reason,
            total,
            lambda reason: samples_link(reason=reason),
        )
        yield Section("Abstentions", [table], note)


def general_sections(summary: Summary) -> Iterator[Section]:
    """Failures, judges, usage, and figures that could not be computed."""
    if summary.failures_by_reason:
        failed = samples_link(outcome="failed")
        table = _reasons(
            "Failed samples by reason", summary.failures_by_reason, summary.sample_count, lambda _: failed
        )
        note = f"Samples without a result by reason, of {summary.sample_count:,} samples."
        yield Section("Failed samples", [table], note)
    if summary.model_failures:
        note = (
            "Outputs of models under test that are refusals, empty or cut off. They count against the model."
        )
        yield Section("Unusable outputs", [_failures(summary)], note)
    if summary.judges:
        yield Section("Judges", [_judges(summary.judges)], "As their answers state them.", detail=True)
    yield from comparison_sections(summary)
    yield Section(_USAGE, [_usage(summary.usage)], detail=True)
    yield from limit_sections(summary)


def limit_sections(summary: Summary) -> Iterator[Section]:
    """What limits the figures, and the figures that could not be computed."""
    for title, texts in (
        ("Limits of these figures", summary.notices),
        ("Figures that are missing", summary.problems),
    ):
        if texts:
            yield Section(title, lines=[_sentence(one) for one in texts], warning=True)


def _sentence(text: str) -> str:
    whole = text[:1].upper() + text[1:]
    return whole if whole.endswith((".", "?", "!")) else f"{whole}."


def missing_gold_answers(figures: GoldAnswerFigures) -> Iterator[Section]:
    """The samples that were judged without the gold answer that they asked for; none if there are none."""
    if figures.missing_count:
        table = _reasons("Missing gold answers by reason", figures.missing_by_reason, figures.sample_count)
        note = (
            "Samples that were judged without a gold answer, because it could not be written, by reason, of "
            f"{figures.sample_count:,} samples that asked for one."
        )
        yield Section("Missing gold answers", [table], note)


def _reasons(
    caption: str, counts: Mapping[str, int], total: int, link_of: Callable[[str], str] = lambda _: ""
) -> Table:
    """Counts by reason, the largest first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows: Sequence[Sequence[Cell | str]] = [
        [words(name), count(number, link_of(name)), share_cell(number / max(1, total))]
        for name, number in ordered
        if number
    ]
    return Table(caption, columns("reason", figures=(Column("count", bars=True), "share")), rows)


def _failures(summary: Summary) -> Table:
    rows: Sequence[Sequence[Cell | str]] = [
        [
            name_cell(one.model, samples_link(model=one.model)),
            words(one.reason),
            count(one.judgement_count),
        ]
        for one in summary.model_failures
    ]
    return Table("Unusable outputs by model", columns("model", "reason", figures=("judgements",)), rows)


def _judges(judges: Sequence[JudgeFigures]) -> Table:
    names = ("role", "judge")
    texts = ("name and version", "model", "prompts")
    table = Table("Judges", columns(*names, texts=texts, figures=("judgements", "abstained")), heads=2)
    for one in judges:
        prompts = ", ".join(f"{name} {digest[:_HASH_LENGTH]}" for name, digest in sorted(one.prompts.items()))
        abstained = one.abstention_count / one.judgement_count if one.judgement_count else None
        table.add_row(
            one.role,
            name_cell(one.judge),
            f"{one.name} {one.version}".strip(),
            one.model,
            prompts,
            count(one.judgement_count),
            f"{one.abstention_count:,} ({percent(abstained)})",
        )
    return table


def _usage(usage: Usage) -> Table:
    bound = " (calls with a known price only)" if usage.unpriced_call_count else ""
    always = [
        ("prompt tokens", usage.prompt_token_count),
        ("completion tokens", usage.completion_token_count),
        ("calls answered by a provider", usage.provider_call_count),
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
    table = Table(_USAGE, columns("usage", figures=("amount",)))
    table.add_row(f"cost{bound}", Cell(format_cost(usage), optional(usage, "cost_usd")))
    for name, number in [*always, *((name, number) for name, number in others if number)]:
        table.add_row(name, count(number))
    return table
