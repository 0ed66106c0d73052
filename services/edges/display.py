"""Progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars


@contextmanager
def progress_bar(console: Console, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Shows how many of ``total`` are done; the function that is given counts one."""
    with progress_bars(console) as bars:
        task = bars.add_task(what, total=total, note="")
        yield lambda: bars.advance(task)


def progress_bars(console: Console) -> Bars:
    """Bars with a description, a count, the remaining time and a note."""
    return Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
