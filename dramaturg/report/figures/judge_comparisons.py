"""Tables of judges and their shadows."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.evaluation.v1.summary_pb2 import ComparedJudge, JudgeComparison, Summary
from dramaturg.report.tables import (
    ABSENT,
    INTERVAL,
    SHARE,
    Cell,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    format_cost,
    interval_cell,
    name_cell,
    percent,
    samples_link,
)

_NOTE = (
    "Equal pass rates are not agreement: judges with equal rates can differ on every item. The agreement is "
    "the share of equal verdicts of both."
)


def comparison_sections(summary: Summary) -> Iterator[Section]:
    """A section for each shadow."""
    for one in summary.judge_comparisons:
        title = f"{one.role}: {one.first_judge} and its shadow {one.second_judge}"
        unseen = [
            f"{amount:,} of {one.item_count:,} items were not seen by the shadow: {reason}."
            for reason, amount in sorted(one.unseen_by_reason.items())
        ]
        tables = [_agreement(one), _judges(one), *([_flips(one)] if one.flips else [])]
        yield Section(title, tables, _NOTE, unseen)


def _agreement(one: JudgeComparison) -> Table:
    rates = [f"PASS of {judge}" for judge in (one.first_judge, one.second_judge)]
    heads = (
        "judged by both",
        "agreement",
        f"{INTERVAL}, 0 to 100 %",
        "kappa",
        *rates,
        "PASS to FAIL",
        "FAIL to PASS",
    )
    rows = [
        [
            Cell(figures.criterion or "all"),
            count(figures.judged_count),
            estimate_cell(figures.agreement),
            interval_cell(figures.agreement, SHARE, percent),
            estimate_cell(figures.cohen_kappa, show=figure),
            estimate_cell(figures.first_pass_rate),
            estimate_cell(figures.second_pass_rate),
            count(figures.pass_to_fail_count),
            count(figures.fail_to_pass_count),
        ]
        for figures in one.figures
    ]
    return Table("Agreement by criterion", columns("criterion", figures=heads), rows)


def _judges(one: JudgeComparison) -> Table:
    heads = ("assessments", "abstained", "cost", "mean latency", "largest latency")
    rows = [
        [
            name_cell(name),
            count(judge.assessment_count),
            count(sum(judge.abstentions_by_reason.values())),
            Cell(format_cost(judge.usage)),
            *_latencies(judge),
        ]
        for name, judge in ((one.first_judge, one.first), (one.second_judge, one.second))
    ]
    return Table("Cost and latency", columns("judge", figures=heads), rows)


def _latencies(judge: ComparedJudge) -> list[Cell]:
    if not judge.HasField("mean_latency_seconds"):
        return [Cell(ABSENT), Cell(ABSENT)]
    return [
        Cell(f"{seconds:.3f} s") for seconds in (judge.mean_latency_seconds, judge.largest_latency_seconds)
    ]


def _flips(one: JudgeComparison) -> Table:
    rows = [
        [
            name_cell(
                flip.sample_id or f"{flip.sample_index + 1}", samples_link(sample=str(flip.sample_index))
            ),
            Cell(flip.candidate_id),
            Cell(flip.model),
            Cell(flip.criterion),
            Cell(flip.first),
            Cell(flip.second),
        ]
        for flip in one.flips
    ]
    names = ("sample", "candidate", "model", "criterion", one.first_judge, one.second_judge)
    caption = f"{len(one.flips):,} of {one.flip_count:,} verdicts that differ"
    return Table(caption, columns(*names), rows, folded=caption)
