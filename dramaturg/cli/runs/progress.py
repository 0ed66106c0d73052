"""Shows how far a run is: a live line on a terminal, else a line every few seconds."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_UNSPECIFIED, Run, RunProgress
from dramaturg.cli.runs.describing import describe_progress, state_name

BAR_WIDTH = 12
"""Characters of the bar."""
LINE_SECONDS = 5.0
"""The least seconds between two lines where there is no terminal."""


class RunDisplay:
    """Use it in ``with``.

    Args:
        console: Where it is shown.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state = RUN_STATE_UNSPECIFIED
        self._printed = -LINE_SECONDS
        self._live: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            # In a column that may be folded, so that nothing is cut where the terminal is narrow.
            described = TextColumn("{task.description}", table_column=Column())
            state = TextColumn("{task.fields[state]}")
            self._live = Progress(state, BarColumn(BAR_WIDTH), described, console=console)
            self._task = self._live.add_task("", total=None, state="")

    def show_run(self, run: Run) -> None:
        """Shows the state, and how far it is."""
        if run.state != self._state:
            self._state = run.state
            if self._live is None:
                state = state_name(run.state)
                self.tell(f"{run.id} {state}{f': {run.state_reason}' if run.state_reason else ''}")
        self.show_progress(run.progress)

    def show_progress(self, progress: RunProgress) -> None:
        """Shows how far it is."""
        if self._live is not None:
            self._live.update(
                self._task,
                completed=progress.succeeded_count + progress.failed_count,
                total=progress.sample_count or None,
                description=describe_progress(progress, self._state),
                state=state_name(self._state),
            )
        elif time.monotonic() - self._printed >= LINE_SECONDS:
            self._printed = time.monotonic()
            self.tell(describe_progress(progress, self._state))

    def tell(self, message: str) -> None:
        """Shows a line that stays."""
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
