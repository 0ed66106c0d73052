"""``dramaturg research graphs train``."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Annotated, Any, Protocol, Self

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import tell_next
from dramaturg.graphs.files import FileError
from dramaturg_research.training.checkpoints import CheckpointMismatchError
from dramaturg_research.training.evaluation import choose_threshold
from dramaturg_research.training.progress import Progress, epoch_facts
from dramaturg_research.training.scripts import read_scripts
from dramaturg_research.training.trainer import (
    TooFewScriptsError,
    TrainingData,
    TrainingListener,
    finished_card,
    predict_scripts,
    train,
    training_versions,
)
from services.edges.card import DataFacts, EpochFacts, ModelCard, member_folders, weights_digest
from services.edges.commands import Device, Threads, progress_bars
from services.edges.encoder import EncoderError, ExtraMissingError, default_precision
from services.edges.inference import WindowError
from services.edges.model import load_members
from services.edges.plan import Label, Precision, Reading, TrainingPlan

app = typer.Typer()

_DEFAULTS = TrainingPlan(encoder="-")
_TOGETHER = TrainingPlan(encoder="-", reading=Reading.TOGETHER)


def _by_reading(name: str, text: str) -> str:
    together, pairs = getattr(_TOGETHER, name), getattr(_DEFAULTS, name)
    return f"{text} Default: {together:g} for together, {pairs:g} for pairs."


_PROBLEMS = (
    EncoderError,
    ExtraMissingError,
    FileError,
    CheckpointMismatchError,
    TooFewScriptsError,
    WindowError,
)


@app.command("train")
def train_command(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Scripts in proScript's format, .json or .jsonl.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the model.")],
    encoder: Annotated[str, typer.Option(help="The encoder to start from: a folder or a hub id.")],
    reading: Annotated[
        Reading, typer.Option(help="The encoder's input: all events of a script, or pairs of events.")
    ] = Reading.TOGETHER,
    label: Annotated[
        Label, typer.Option(help="The predicted relation of a pair; 'both' requires --reading together.")
    ] = _DEFAULTS.label,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal models on one machine.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, help=_by_reading("epochs", "The maximum number of epochs."))
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=_by_reading("patience", "Stops after this number of epochs without a better F1."),
            rich_help_panel=MORE,
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help=_by_reading("batch_size", "Scripts or pairs of one step."))
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help=_by_reading("learning_rate", "The maximum learning rate."),
            rich_help_panel=MORE,
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help=_by_reading("max_length", "The maximum number of tokens of one input."),
            rich_help_panel=MORE,
        ),
    ] = None,
    holdout: Annotated[float, typer.Option(help="The share of held-out scripts.")] = _DEFAULTS.holdout,
    members: Annotated[
        int,
        typer.Option(
            min=1,
            max=100,
            help="The number of models trained; their probabilities are averaged.",
            rich_help_panel=MORE,
        ),
    ] = _DEFAULTS.members,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="The precision of matrix products. Default: bfloat16 on CUDA, else float32.",
            rich_help_panel=MORE,
        ),
    ] = None,
    threads: Threads = 0,
    device: Device = None,
    checkpoint_every: Annotated[
        int,
        typer.Option(
            min=1,
            help="Batches between checkpoints.",
            rich_help_panel=MORE,
        ),
    ] = 200,
) -> None:
    """Trains a model that predicts the order of events.

    A tenth of the scripts is held out; the epoch and the threshold are chosen by the F1 of their edges, and
    training stops when it no longer improves. The cost of an ensemble is proportional to its members. An
    interrupted training resumes from its checkpoint when the same command is run again. The model is
    written with its card, edge_model.json, and served by "dramaturg serve edges".

    For example:

        dramaturg research graphs train scripts.json -o model --encoder sentence-transformers/all-MiniLM-L6-v2
    """
    try:
        given: dict[str, Any] = {
            "epochs": epochs,
            "patience": patience,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "max_length": max_length,
        }
        plan = TrainingPlan(
            encoder=encoder,
            reading=reading,
            label=label,
            seed=seed,
            holdout=holdout,
            members=members,
            precision=precision or default_precision(device),
            threads=threads,
            # Options that are not given have the defaults of the reading.
            **{name: value for name, value in given.items() if value is not None},
        )
        split = TrainingData.split(read_scripts(data), plan)
        console = Console(stderr=True)
        with TrainingDisplay(console, split.facts) as display:
            card = train_members(
                split, plan, output, display, device=device, checkpoint_every=checkpoint_every
            )
    except ValidationError as error:
        wrong = error.errors()[0]
        fail(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}")
    except _PROBLEMS as error:
        fail(str(error))
    show_card(Console(), card, output)
    tell_next("research", "graphs", "predict", output, "FILE")


class EnsembleListener(TrainingListener, Protocol):
    """Receives the progress of training an ensemble."""

    def on_member(self, member: int, members: int) -> None:
        """Called when the training of a member starts; ``member`` counts from 1."""


def train_members(
    data: TrainingData,
    plan: TrainingPlan,
    folder: Path,
    listener: EnsembleListener,
    *,
    device: str | None = None,
    checkpoint_every: int = 200,
) -> ModelCard:
    """Trains as many models as a plan says; a single one is as ``train`` makes it.

    Members that are finished are left as they are, so one that was killed goes on where it was. The scripts
    held out are the same for all: the ensemble's threshold is chosen by what no member has learnt.

    Args and errors: those of ``train``.
    """
    if plan.members == 1:
        return train(data, plan, folder, listener, device=device, checkpoint_every=checkpoint_every)
    finished = finished_card(folder, plan, data.facts)
    if finished is not None:
        return finished
    cards = []
    for place, member in enumerate(member_folders(folder, plan)):
        listener.on_member(place + 1, plan.members)
        its_plan = plan.for_member(place)
        cards.append(
            train(data, its_plan, member, listener, device=device, checkpoint_every=checkpoint_every)
        )
    card = ModelCard(
        plan=plan,
        data=data.facts,
        epochs=(_scores(data, plan, folder, listener, cards, device),),
        chosen_epoch=0,
        weights_sha256=weights_digest(folder, plan),
        versions=training_versions(),
    )
    card.write(folder)
    return card


def _scores(
    data: TrainingData,
    plan: TrainingPlan,
    folder: Path,
    listener: TrainingListener,
    cards: Sequence[ModelCard],
    device: str | None,
) -> EpochFacts:
    """The scores of the ensemble."""
    ensemble = load_members(folder, plan, device=device)
    predicted = predict_scripts(ensemble, data.held_out, listener)
    threshold, scores = choose_threshold(data.held_out, predicted)
    loss = fsum(card.held_out.loss for card in cards) / len(cards)
    return epoch_facts(loss, threshold, scores)


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
