"""What an evaluation shows to people: progress while it runs, tables at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import CandidateAssessment
from dramaturg.cli.tally import OUTCOMES, Tally


class ProgressBar:
    """Shows the progress on standard error. Use it in ``with``.

    Args:
        total: How many samples there are.
    """

    def __init__(self, total: int) -> None:
        self._progress = Progress(
            TextColumn("samples"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn(
                "{task.fields[verdicts]} verdicts, {task.fields[abstained]} abstained{task.fields[spent]}"
            ),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=total, verdicts=0, abstained=0, spent="")
        self._verdicts = 0
        self._abstained = 0

    def assessed(self, assessment: CandidateAssessment) -> None:
        """Counts a judge's verdicts."""
        verdicts = assessment.assessment.verdicts
        self._verdicts += len(verdicts)
        self._abstained += sum(verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN for verdict in verdicts)
        self._progress.update(self._task, verdicts=self._verdicts, abstained=self._abstained)

    def finished(self, tally: Tally) -> None:
        """Counts a sample."""
        self._progress.update(self._task, completed=tally.samples, spent=_spent(tally.usage))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def show_tables(console: Console, tally: Tally) -> None:
    """Prints the verdicts by criterion, by model where there are several, by tag, and the abstentions."""
    by_criterion = {name: tally.by_criterion[name] for name in tally.criteria()}
    console.print(_verdict_table("criterion", {**by_criterion, "all": tally.verdicts}))
    if len(tally.by_model) > 1:
        console.print(_verdict_table("model", tally.by_model))
    if tally.group_by:
        console.print(_verdict_table(tally.group_by, dict(sorted(tally.by_tag.items()))))
    if tally.abstentions:
        table = Table("abstained because", box=None)
        table.add_column("verdicts", justify="right")
        for reason, count in tally.abstentions.most_common():
            table.add_row(reason, str(count))
        console.print(table)


def _verdict_table(name: str, rows: Mapping[str, Mapping[str, int]]) -> Table:
    table = Table(name, box=None)
    for outcome in OUTCOMES:
        table.add_column(outcome, justify="right")
    table.add_column("PASS of judged", justify="right")
    for label, counts in rows.items():
        judged = counts.get("PASS", 0) + counts.get("FAIL", 0)
        share = f"{counts.get('PASS', 0) / judged:.1%}" if judged else "-"
        table.add_row(label or "(none)", *(str(counts.get(outcome, 0)) for outcome in OUTCOMES), share)
    return table


def _spent(usage: Usage) -> str:
    tokens = usage.prompt_token_count + usage.completion_token_count
    text = f", {tokens:,} tokens" if tokens else ""
    if usage.HasField("cost_usd"):
        bound = "at least " if usage.unpriced_call_count else ""
        text += f", {bound}${usage.cost_usd:.4f}"
    return text
