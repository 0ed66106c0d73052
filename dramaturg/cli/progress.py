"""What an evaluation shows to people: progress while it runs, tables at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from dramaturg.cli.terminal import BAR_WIDTH, Terminal, printable
from dramaturg.results.quantities import consumption
from dramaturg.summaries.samples import SampleAggregator


class JudgementCount(NamedTuple):
    """Counts the judgements of an event."""

    total: int
    """All of them."""
    abstained: int
    """Those that abstain."""


class ProgressBar:
    """Shows samples, rate, remaining time, judgements, cost and waits on standard error. Use it in ``with``.

    Args:
        total: How many samples there are.
        noun: The noun for judgements, such as "verdicts". Empty: there are none.
        judged: How many of them an event brings.
        name: What is evaluated, where several evaluations follow one another.
    """

    def __init__(
        self, total: int, noun: str, judged: Callable[[Any], JudgementCount], name: str = ""
    ) -> None:
        self._noun = noun
        self._progress = Progress(
            TextColumn(f"{name}: samples" if name else "samples", markup=False),
            BarColumn(BAR_WIDTH),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            # In a column that may be folded, so that nothing is cut where the terminal is narrow.
            TextColumn("{task.description}", table_column=Column(), markup=False),
            console=Terminal(stderr=True),
        )
        self._task = self._progress.add_task("", total=total)
        self._spent = self._waits = self._waits_told = ""
        self._judged = judged
        self._count = 0
        self._abstained = 0

    def happened(self, event: Any) -> None:
        """Counts the judgements of an event."""
        judged = self._judged(event)
        self._count += judged.total
        self._abstained += judged.abstained
        self._describe()

    def show_waits(self, waits: Sequence[str]) -> None:
        """Shows the rate limits that model calls wait for; where there is no terminal, each provider once."""
        text = printable("; ".join(waits))
        self._waits = text
        self._describe()
        providers = "; ".join(wait.partition(",")[0] for wait in waits)
        if text and providers != self._waits_told and not self._progress.console.is_terminal:
            self._waits_told = providers
            self._progress.console.print(text, soft_wrap=True)

    def finished(self, aggregator: SampleAggregator[Any]) -> None:
        """Counts a sample."""
        self._spent = consumption(aggregator.usage)
        self._progress.update(self._task, completed=aggregator.samples)
        self._describe()

    def _describe(self) -> None:
        task = self._progress.tasks[self._task]
        # Over the whole time: samples evaluated at once end together, so that a rate of the last ones jumps.
        rate = f"{task.completed / task.elapsed:.3g}/s" if task.completed and task.elapsed else ""
        judged = f"{self._count} {self._noun}, {self._abstained} abstained{self._spent}" if self._noun else ""
        described = ", ".join(filter(None, (rate, judged)))
        self._progress.update(self._task, description="\n".join(filter(None, (described, self._waits))))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
