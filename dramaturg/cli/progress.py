"""What an evaluation shows to people: progress while it runs, tables at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dramaturg.cli.cells import consumption
from dramaturg.cli.terminal import Terminal, printable
from dramaturg.summaries.samples import SampleAggregator


class JudgementCount(NamedTuple):
    """Counts the judgements of an event."""

    total: int
    """All of them."""
    abstained: int
    """Those that abstain."""


class ProgressBar:
    """Shows the progress on standard error. Use it in ``with``.

    Args:
        total: How many samples there are.
        noun: The noun for judgements, such as "verdicts". Empty: there are none.
        judged: How many of them an event brings.
    """

    def __init__(self, total: int, noun: str, judged: Callable[[Any], JudgementCount]) -> None:
        judged_text = f"{{task.fields[count]}} {noun}, {{task.fields[abstained]}} abstained"
        self._progress = Progress(
            TextColumn("samples"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            *([TextColumn(f"{judged_text}{{task.fields[spent]}}")] if noun else []),
            TextColumn("{task.fields[waits]}", markup=False, style="yellow"),
            console=Terminal(stderr=True),
        )
        self._task = self._progress.add_task("", total=total, count=0, abstained=0, spent="", waits="")
        self._waits_told = ""
        self._judged = judged
        self._count = 0
        self._abstained = 0

    def happened(self, event: Any) -> None:
        """Counts the judgements of an event."""
        judged = self._judged(event)
        self._count += judged.total
        self._abstained += judged.abstained
        self._progress.update(self._task, count=self._count, abstained=self._abstained)

    def show_waits(self, waits: Sequence[str]) -> None:
        """Shows the rate limits that model calls wait for; where there is no terminal, each provider once."""
        text = printable("; ".join(waits))
        self._progress.update(self._task, waits=text)
        providers = "; ".join(wait.partition(",")[0] for wait in waits)
        if text and providers != self._waits_told and not self._progress.console.is_terminal:
            self._waits_told = providers
            self._progress.console.print(text, soft_wrap=True)

    def finished(self, aggregator: SampleAggregator[Any]) -> None:
        """Counts a sample."""
        self._progress.update(self._task, completed=aggregator.samples, spent=consumption(aggregator.usage))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
