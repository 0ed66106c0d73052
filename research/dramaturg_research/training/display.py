"""What a training shows: progress on standard error, the card at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from rich.console import Console
from rich.table import Table

from dramaturg_research.training.progress import Progress
from services.edges.card import DataFacts, ModelCard
from services.edges.commands import progress_bars


class TrainingDisplay:
    """A ``TrainingListener`` that shows progress bars; a context manager."""

    def __init__(self, console: Console, data: DataFacts) -> None:
        self._console = console
        self._data = data
        self._bars = progress_bars(console)
        self._batches = self._bars.add_task("training", total=None, note="")
        self._scripts = self._bars.add_task("held out", total=data.held_out_scripts, note="")

    def on_batch(self, progress: Progress, batches: int) -> None:
        """Shows the batch and the mean loss of its epoch."""
        self._bars.update(
            self._batches,
            description=f"epoch {progress.epoch + 1}",
            completed=progress.batch,
            total=batches,
            note=f"loss {progress.loss_sum / progress.batch:.4f}",
        )

    def on_evaluation(self, done: int, scripts: int) -> None:
        """Shows the number of held-out scripts predicted so far."""
        self._bars.update(self._scripts, completed=done, total=scripts)

    def on_member(self, member: int, members: int) -> None:
        self._console.print(f"member {member} of {members}", highlight=False)

    def on_epoch(self, progress: Progress) -> None:
        facts = progress.epochs[-1]
        self._console.print(
            f"epoch {progress.epoch}: loss {facts.loss:.4f}, held-out F1 {facts.f1:.4f} "
            f"at threshold {facts.threshold:g}",
            highlight=False,
        )

    def __enter__(self) -> Self:
        self._console.print(
            f"{self._data.trained_scripts} scripts to learn from, {self._data.held_out_scripts} held out, "
            f"{len(self._data.skipped)} skipped",
            highlight=False,
        )
        for row, problem in self._data.skipped.items():
            self._console.print(f"skipped {row}: {problem}", highlight=False, markup=False)
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def show_card(console: Console, card: ModelCard, folder: Path) -> None:
    """Prints the scores of the training."""
    table = Table("epoch", "loss", "threshold", "F1", "precision", "recall", "exact", box=None)
    for epoch, facts in enumerate(card.epochs):
        table.add_row(
            f"{epoch + 1}{' (kept)' if epoch == card.chosen_epoch else ''}",
            f"{facts.loss:.4f}",
            f"{facts.threshold:g}",
            *(f"{value:.4f}" for value in (facts.f1, facts.precision, facts.recall)),
            str(facts.exact_matches),
        )
    console.print(table)
    console.print(f"on {card.data.held_out_scripts} held-out scripts; the model: {folder}", highlight=False)
