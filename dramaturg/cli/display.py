"""What an evaluation shows to people: progress while it runs, tables at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsResponse
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.tally import OUTCOMES, SampleTally, Tally
from dramaturg.cli.terminal import Terminal


class Judged(NamedTuple):
    """How many judgements an event brings."""

    total: int
    """All of them."""
    abstained: int
    """Those that abstain."""


class ProgressBar:
    """Shows the progress on standard error. Use it in ``with``.

    Args:
        total: How many samples there are.
        noun: What judgements are called, such as "verdicts". Empty: there are none.
        judged: How many of them an event brings.
    """

    def __init__(self, total: int, noun: str, judged: Callable[[Any], Judged]) -> None:
        judged_text = f"{{task.fields[count]}} {noun}, {{task.fields[abstained]}} abstained"
        self._progress = Progress(
            TextColumn("samples"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            *([TextColumn(f"{judged_text}{{task.fields[spent]}}")] if noun else []),
            console=Terminal(stderr=True),
        )
        self._task = self._progress.add_task("", total=total, count=0, abstained=0, spent="")
        self._judged = judged
        self._count = 0
        self._abstained = 0

    def happened(self, event: Any) -> None:
        """Counts the judgements of an event."""
        judged = self._judged(event)
        self._count += judged.total
        self._abstained += judged.abstained
        self._progress.update(self._task, count=self._count, abstained=self._abstained)

    def finished(self, tally: SampleTally[Any]) -> None:
        """Counts a sample."""
        self._progress.update(self._task, completed=tally.samples, spent=spent(tally.usage))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def verdicts_judged(event: EvaluateScriptsResponse) -> Judged:
    """How many verdicts an event of an evaluation of scripts brings."""
    verdicts = event.assessment.assessment.verdicts
    return Judged(len(verdicts), sum(verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN for verdict in verdicts))


def show_tables(console: Terminal, tally: Tally) -> None:
    """Prints the verdicts by criterion, by model where there are several, by tag, and the abstentions."""
    by_criterion = {name: tally.by_criterion[name] for name in tally.criteria()}
    tables = [_verdict_table("criterion", {**by_criterion, "all": tally.verdicts})]
    if len(tally.by_model) > 1:
        tables.append(_verdict_table("model", tally.by_model))
    if tally.group_by:
        tables.append(_verdict_table(tally.group_by, dict(sorted(tally.by_tag.items()))))
    abstained = Table("abstained because", figures=("verdicts",))
    for reason, count in tally.abstentions.most_common():
        abstained.add_row(reason, str(count))
    print_tables(console, *tables, abstained)


def _verdict_table(name: str, rows: Mapping[str, Mapping[str, int]]) -> Table:
    table = Table(name, figures=(*OUTCOMES, "PASS of judged"))
    for label, counts in rows.items():
        judged = counts.get("PASS", 0) + counts.get("FAIL", 0)
        share = f"{counts.get('PASS', 0) / judged:.1%}" if judged else "-"
        table.add_row(label or "(none)", *(str(counts.get(outcome, 0)) for outcome in OUTCOMES), share)
    return table


def spent(usage: Usage) -> str:
    """What was consumed, to be put after a comma. Empty: nothing is known of it."""
    tokens = usage.prompt_token_count + usage.completion_token_count
    text = f", {tokens:,} tokens" if tokens else ""
    if usage.HasField("cost_usd") and (usage.cost_usd or not usage.unpriced_call_count):
        bound = "at least " if usage.unpriced_call_count else ""
        text += f", {bound}${usage.cost_usd:.4f}"
    return text
