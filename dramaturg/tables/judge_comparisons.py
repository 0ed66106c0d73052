"""Tables of judges and their shadows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import JudgeComparison, Summary
from dramaturg.tables.cells import (
    SHARES,
    count,
    estimate_cell,
    figure,
    format_cost,
    name_cell,
    optional,
    samples_link,
)
from dramaturg.tables.model import ABSENT, Cell, Column, Section, Table, columns

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
        tables = [_agreement(one), _judges(one), *([_flips(one)] if one.flips else [])]
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


def _judges(one: JudgeComparison) -> Table:
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
