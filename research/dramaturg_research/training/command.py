"""``dramaturg research graphs train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console

from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import tell_next
from dramaturg.graphs.files import FileError
from dramaturg_research.training.checkpoints import CheckpointMismatchError
from dramaturg_research.training.display import TrainingDisplay, show_card
from dramaturg_research.training.members import train_members
from dramaturg_research.training.scripts import read_scripts
from dramaturg_research.training.trainer import TooFewScriptsError, TrainingData
from services.edges.commands import Device, Threads
from services.edges.encoder import EncoderError, ExtraMissingError, default_precision
from services.edges.inference import WindowError
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
