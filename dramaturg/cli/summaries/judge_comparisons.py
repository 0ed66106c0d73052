"""Tables of judges and their shadows."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.api.evaluation.v1.summary_pb2 import ComparedJudge, JudgeComparison
from dramaturg.cli.cells import ABSENT, named, number, percent
from dramaturg.cli.summaries.cells import interval_cell, value_cell
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.results.quantities import money

MAX_FLIPS = 20
"""The most differing verdicts that are printed; JSON has up to 200."""
NOT_AGREEMENT = (
    "Equal pass rates are not agreement: judges with equal rates can differ on every item. The agreement is "
    "the share of equal verdicts."
)
_JUDGES = ("assessments", "ABSTAIN", "cost", "tokens", "mean s", "largest s")


def show(console: Terminal, comparisons: Iterable[JudgeComparison]) -> None:
    """Prints the agreement by criterion, what each judge took, and the verdicts that differ."""
    for one in comparisons:
        second = one.second_judge
        lines = [f"{one.role}: {one.first_judge} and {second}, {one.item_count} items.", NOT_AGREEMENT]
        if one.unseen_by_reason:
            reasons = ", ".join(f"{name} {count}" for name, count in sorted(one.unseen_by_reason.items()))
            lines.append(f"{sum(one.unseen_by_reason.values())} items were not seen by {second}: {reasons}.")
        flips = f"{one.flip_count} verdicts differ" + (
            f"; the first {MAX_FLIPS} are:" if one.flip_count > MAX_FLIPS else "."
        )
        print_tables(console, *lines, _agreement(one), _costs(one), flips, _flips(one))


def _agreement(one: JudgeComparison) -> Table:
    rates = [f"PASS of {judge}" for judge in (one.first_judge, one.second_judge)]
    changes = ("PASS to FAIL", "FAIL to PASS")
    table = Table(
        "criterion", figures=("judged by both", "agreement", "95 % interval", "kappa", *rates, *changes)
    )
    for figures in one.figures:
        shares = (figures.first_pass_rate, figures.second_pass_rate)
        table.add_row(
            figures.criterion or "all",
            str(figures.judged_count),
            percent(figures.agreement.value if figures.agreement.HasField("value") else None),
            interval_cell(figures.agreement),
            value_cell(figures.cohen_kappa) if figures.HasField("cohen_kappa") else ABSENT,
            *(percent(share.value if share.HasField("value") else None) for share in shares),
            str(figures.pass_to_fail_count),
            str(figures.fail_to_pass_count),
        )
    return table


def _costs(one: JudgeComparison) -> Table:
    table = Table("judge", figures=_JUDGES)
    for name, judge in ((one.first_judge, one.first), (one.second_judge, one.second)):
        table.add_row(name, *_cost_cells(judge))
    return table


def _cost_cells(judge: ComparedJudge) -> list[str]:
    usage = judge.usage
    return [
        str(judge.assessment_count),
        str(sum(judge.abstentions_by_reason.values())),
        money(usage.cost_usd) if usage.HasField("cost_usd") else ABSENT,
        str(usage.prompt_token_count + usage.completion_token_count),
        number(judge.mean_latency_seconds if judge.HasField("mean_latency_seconds") else None, 3),
        number(judge.largest_latency_seconds if judge.HasField("largest_latency_seconds") else None, 3),
    ]


def _flips(one: JudgeComparison) -> Table:
    judges = (one.first_judge, one.second_judge)
    table = Table("sample", texts=("candidate", "model", "criterion", *judges))
    for flip in one.flips[:MAX_FLIPS]:
        table.add_row(
            flip.sample_id or str(flip.sample_index),
            flip.candidate_id,
            named(flip.model),
            flip.criterion,
            flip.first,
            flip.second,
        )
    return table
