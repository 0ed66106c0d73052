"""Training of one model, with epoch and threshold chosen by the F1 of whole graphs.

The loss is over pairs, but the target is the graph. After every epoch the graphs of the held-out scripts are
decoded, and training stops when their F1 no longer improves.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from dramaturg_research.training.checkpoints import CheckpointMismatchError, Checkpoints
from dramaturg_research.training.epochs import EpochBatches, JointBatches, PairBatches, require_window
from dramaturg_research.training.evaluation import choose_threshold
from dramaturg_research.training.progress import Progress
from dramaturg_research.training.scripts import Script, ScriptFile, hold_out
from services.edges.card import CardError, DataFacts, ModelCard, read_card, weights_digest
from services.edges.encoder import PairEncoder, require_extra
from services.edges.inference import EdgeEncoder, EdgeModel, infer
from services.edges.joint_encoder import JointEncoder
from services.edges.order import Edge
from services.edges.plan import Reading, TrainingPlan

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
        """Splits the scripts of a file.

        Raises:
            TooFewScriptsError: One side of the split would be empty.
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
    """Trains one model, resuming from a checkpoint if there is one, and saves it with its card.

    A folder that already has the model is left unchanged.

    Args:
        data: The scripts.
        plan: The settings.
        folder: The folder of the model and of checkpoints.
        listener: Receives progress.
        device: The torch device; absent: the fastest available.
        checkpoint_every: The number of batches between checkpoints; one is also written after each epoch.

    Raises:
        ExtraMissingError: sentence-transformers is not installed.
        EncoderError: The encoder cannot be loaded.
        WindowError: A script exceeds the window of a joint encoder.
        CheckpointMismatchError: The folder has another model or a checkpoint of another training.
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
    """The card of a finished model in the folder, if any.

    Raises:
        CheckpointMismatchError: It is another model.
    """
    try:
        card = read_card(folder)
    except CardError:
        return None
    if (card.plan, card.data) != (plan, facts):
        raise CheckpointMismatchError(f"{folder} has another model: write to another folder, or remove it")
    return card


def _prepare(
    data: TrainingData, plan: TrainingPlan, device: str | None
) -> tuple[EdgeEncoder, Callable[[int], EpochBatches]]:
    """The encoder and the factory of the batches of an epoch."""
    # New layers are initialized while the encoder is loaded, so the seed must be set before.
    require_extra()
    # Required for deterministic CUDA matrix products; read when CUDA starts.
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


def training_versions() -> dict[str, str]:
    """The versions of Python and of the packages that decide a training, by name."""
    versions = {"python": platform.python_version()}
    for name in ("dramaturg", "sentence-transformers", "transformers", "torch"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            # E.g. dramaturg itself, run from a clone that is not installed.
            continue
    return versions


_MAX_GRADIENT_NORM = 1.0


def make_optimizer(encoder: EdgeEncoder, plan: TrainingPlan) -> Any:
    """AdamW over the parameter groups of a model."""
    import torch

    groups = []
    for module, rate in encoder.parameter_groups:
        learnt = [parameter for parameter in module.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in learnt if parameter.ndim > 1]
        vectors = [parameter for parameter in learnt if parameter.ndim <= 1]
        groups += [
            {"params": matrices, "weight_decay": plan.weight_decay, "rate": rate},
            # No weight decay for biases and normalization scales.
            {"params": vectors, "weight_decay": 0.0, "rate": rate},
        ]
    device = next(encoder.model.parameters()).device
    return torch.optim.AdamW(groups, lr=plan.learning_rate, fused=device.type in {"cpu", "cuda"})


def training_step(encoder: EdgeEncoder, optimizer: Any, loss: Any, rate: float) -> float:
    """Runs one optimizer step and returns the batch's loss.

    Args:
        encoder: The encoder, in training mode.
        optimizer: The result of ``make_optimizer``.
        loss: A scalar tensor with gradients.
        rate: The learning rate of this step.
    """
    import torch

    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(encoder.model.parameters(), _MAX_GRADIENT_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())
