"""Shows the progress of a run: live on a terminal, else as lines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_UNSPECIFIED, Run, RunProgress
from dramaturg.cli.terminal import BAR_WIDTH, Terminal, printable
from dramaturg.results.run_text import describe_hindrance, describe_progress, state_name

LINE_SECONDS = 5.0
"""The least seconds between two lines where there is no terminal."""
INCIDENT_SECONDS = 30.0
"""How often an unchanged incident is repeated there."""


class RunDisplay:
    """Use it in ``with``.

    Args:
        console: Where it is shown.
    """

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._state = RUN_STATE_UNSPECIFIED
        self._lines = _Lines()
        self._live: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            # In a column that may be folded, so that nothing is cut where the terminal is narrow.
            described = TextColumn("{task.description}", table_column=Column(), markup=False)
            state = TextColumn("{task.fields[state]}")
            # The command prints state and progress at the end, so the live line goes then.
            self._live = Progress(state, BarColumn(BAR_WIDTH), described, console=console, transient=True)
            self._task = self._live.add_task("", total=None, state="")

    def show_run(self, run: Run) -> None:
        """Shows state and progress."""
        if run.state != self._state:
            self._state = run.state
            if self._live is None:
                state = state_name(run.state)
                self.tell(f"{run.id} {state}{f': {run.state_reason}' if run.state_reason else ''}")
        self.show_progress(run.progress)

    def show_progress(self, progress: RunProgress) -> None:
        """Shows the progress, and the incident that hinders it."""
        described = describe_progress(progress, self._state)
        hindrance = describe_hindrance(progress, time.time())
        if self._live is not None:
            self._live.update(
                self._task,
                completed=progress.succeeded_count + progress.failed_count,
                total=progress.sample_count or None,
                description=printable(f"{described}\n{hindrance}" if hindrance else described),
                state=state_name(self._state),
            )
        else:
            for line in self._lines.due(
                described, hindrance, progress.incident.description or _providers(progress.model_waits)
            ):
                self.tell(line)

    def tell(self, message: str) -> None:
        """Shows a line that stays."""
        self._console.print(message, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def _providers(waits: Iterable[str]) -> str:
    """What of the waits does not change with the time."""
    return "; ".join(wait.partition(",")[0] for wait in waits)


class _Lines:
    """Decides which lines are worth printing, where each one stays."""

    def __init__(self) -> None:
        self._printed = -LINE_SECONDS
        self._described = ""
        self._warned = -INCIDENT_SECONDS
        self._incident = ""

    def due(self, described: str, hindrance: str, incident: str) -> list[str]:
        """What is to be printed now.

        Args:
            described: How far the run is.
            hindrance: What keeps it from getting further, for how long. Empty: nothing does.
            incident: What of it does not change with the time.
        """
        now, lines = time.monotonic(), list[str]()
        if described != self._described and now - self._printed >= LINE_SECONDS:
            self._printed, self._described = now, described
            lines.append(described)
        if hindrance and (incident != self._incident or now - self._warned >= INCIDENT_SECONDS):
            self._warned, self._incident = now, incident
            lines.append(hindrance)
        return lines
