"""Trains an encoder and chooses the epoch and the threshold by the F1 of whole graphs.

The loss sees pairs, but what counts is the graph that they make together, so scripts are held out,
their graphs are decoded after every epoch, and training stops when these get no better.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.edges.card import CardError, DataFacts, ModelCard, read_card, training_versions, weights_digest
from services.edges.encoder import PairEncoder, require_extra
from services.edges.inference import EdgeEncoder, EdgeModel, infer
from services.edges.joint_encoder import JointEncoder
from services.edges.order import Edge
from services.edges.plan import Reading, TrainingPlan
from services.edges.training.checkpoints import CheckpointMismatchError, Checkpoints
from services.edges.training.epochs import EpochBatches, JointBatches, PairBatches, require_window
from services.edges.training.evaluation import choose_threshold
from services.edges.training.optimizer import make_optimizer, training_step
from services.edges.training.progress import Progress
from services.edges.training.scripts import Script, ScriptFile, hold_out

CHECKPOINT_FOLDER = "checkpoint"


class TrainingListener(Protocol):
    """Receives the progress of a training."""

    def on_batch(self, progress: Progress, batches: int) -> None:
        """Called after a batch: ``progress.batch`` of ``batches`` are done."""

    def on_evaluation(self, done: int, scripts: int) -> None:
        """Called after each prediction of a held-out script."""

    def on_epoch(self, progress: Progress) -> None:
        """Called after the evaluation of an epoch."""


class TooFewScriptsError(ValueError):
    """Too few scripts for a split into training and held-out scripts."""


@dataclass(frozen=True)
class TrainingData:
    """The split of scripts into training and held-out scripts."""

    trained: Sequence[Script]
    held_out: Sequence[Script]
    facts: DataFacts

    @classmethod
    def split(cls, file: ScriptFile, plan: TrainingPlan) -> TrainingData:
        """Parts the scripts of a file.

        Raises:
            TooFewScriptsError: One of the parts would be empty.
        """
        trained, held_out = hold_out(file.scripts, plan.holdout, plan.seed)
        if not trained or not held_out:
            raise TooFewScriptsError(f"{len(file.scripts)} usable scripts cannot be split in two")
        facts = DataFacts(
            sha256=file.sha256,
            trained_scripts=len(trained),
            held_out_scripts=len(held_out),
            skipped=dict(file.skipped),
        )
        return cls(trained, held_out, facts)


def train(
    data: TrainingData,
    plan: TrainingPlan,
    folder: Path,
    listener: TrainingListener,
    *,
    device: str | None = None,
    checkpoint_every: int = 200,
) -> ModelCard:
    """Trains one model, or goes on with a training that was interrupted, and saves it with its card.

    A folder that holds the model already is left as it is.

    Args:
        data: The scripts.
        plan: The settings.
        folder: Where the model is saved, and until then the checkpoint.
        listener: Is told of every step.
        device: Of torch; absent: the fastest there is.
        checkpoint_every: After how many batches a checkpoint is written; one also ends each epoch.

    Raises:
        ExtraMissingError: sentence-transformers is not installed.
        EncoderError: The encoder cannot be loaded.
        WindowError: Events are to be read together, and those of a script are too long for it.
        CheckpointMismatchError: The folder holds another model, or an unfinished training of another kind.
    """
    finished = finished_card(folder, plan, data.facts)
    if finished is not None:
        return finished
    encoder, epoch_batches = _prepare(data, plan, device)
    optimizer = make_optimizer(encoder, plan)
    checkpoints = Checkpoints(folder / CHECKPOINT_FOLDER, plan, data.facts.sha256)
    progress = checkpoints.restore(encoder.model, optimizer) or Progress()
    while not progress.is_done(plan.epochs, plan.patience):
        epoch = epoch_batches(progress.epoch)
        while progress.batch < epoch.batch_count:
            done = progress.epoch * epoch.batch_count + progress.batch
            rate = plan.learning_rate_at(done, epoch.batch_count * plan.epochs)
            encoder.model.train()
            loss = epoch.loss(progress.batch)
            progress = progress.after_batch(training_step(encoder, optimizer, loss, rate))
            listener.on_batch(progress, epoch.batch_count)
            if progress.batch % checkpoint_every == 0:
                checkpoints.save(progress, encoder.model, optimizer)
        predicted = predict_scripts(encoder, data.held_out, listener)
        progress = progress.after_epoch(*choose_threshold(data.held_out, predicted))
        if progress.best_epoch == progress.epoch - 1:
            checkpoints.save_best(encoder.model)
        checkpoints.save(progress, encoder.model, optimizer)
        listener.on_epoch(progress)
    checkpoints.restore_best(encoder.model)
    encoder.save(folder)
    assert progress.best_epoch is not None
    card = ModelCard(
        plan=plan,
        data=data.facts,
        epochs=progress.epochs,
        chosen_epoch=progress.best_epoch,
        weights_sha256=weights_digest(folder, plan),
        versions=training_versions(),
    )
    card.write(folder)
    checkpoints.clear()
    return card


def predict_scripts(
    encoder: EdgeModel, scripts: Sequence[Script], listener: TrainingListener
) -> list[Mapping[Edge, float]]:
    """The probabilities for each script that its events precede each other."""
    predicted = []
    for done, script in enumerate(scripts, start=1):
        predicted.append(infer(encoder, script.scenario, script.events))
        listener.on_evaluation(done, len(scripts))
    return predicted


def finished_card(folder: Path, plan: TrainingPlan, facts: DataFacts) -> ModelCard | None:
    """The card of the model that a folder holds already, if any.

    Raises:
        CheckpointMismatchError: It is another model.
    """
    try:
        card = read_card(folder)
    except CardError:
        return None
    if (card.plan, card.data) != (plan, facts):
        raise CheckpointMismatchError(f"{folder} holds another model: write to another folder, or remove it")
    return card


def _prepare(
    data: TrainingData, plan: TrainingPlan, device: str | None
) -> tuple[EdgeEncoder, Callable[[int], EpochBatches]]:
    """The encoder and the factory of the batches of an epoch."""
    # The new layers are drawn while the encoder is loaded, so the seed comes first.
    require_extra()
    # Without it CUDA's matrix products are not repeatable; it is read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.manual_seed(plan.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if plan.threads:
        torch.set_num_threads(plan.threads)
    if plan.reading is Reading.TOGETHER:
        joint = JointEncoder.start(plan, device=device)
        require_window(joint, (*data.trained, *data.held_out))
        return joint, lambda epoch: JointBatches(joint, data.trained, plan, epoch)
    pairs = PairEncoder.load(plan.encoder, plan.max_length, plan.precision, device=device)
    return pairs, lambda epoch: PairBatches(pairs, data.trained, plan, epoch)
