"""Trains the cross-encoder and chooses the epoch and the threshold by the F1 of whole graphs.

The loss sees single pairs, but what counts is the graph that they make together, so scripts are held out,
their graphs are decoded after every epoch, and training stops when these get no better.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from services.edges.batches import training_batches
from services.edges.card import CardError, DataFacts, ModelCard, read_card, weights_digest
from services.edges.encoder import PairEncoder, Tokens, require_extra
from services.edges.order import Edge
from services.edges.pairs import merge_orders, pairs_of
from services.edges.plan import TrainingPlan
from services.edges.training.checkpoints import Checkpoints, OtherTrainingError
from services.edges.training.evaluation import choose_threshold
from services.edges.training.progress import Progress
from services.edges.training.sampling import Example, sample_epoch
from services.edges.training.scripts import Script, ScriptFile, hold_out

CHECKPOINT_FOLDER = "checkpoint"
_LONGEST_GRADIENT = 1.0


class Listener(Protocol):
    """Is told how a training goes."""

    def on_batch(self, progress: Progress, batches: int) -> None:
        """A batch is done: ``progress.batch`` of the ``batches`` of its epoch."""

    def on_evaluation(self, done: int, scripts: int) -> None:
        """So many of the held-out scripts are predicted."""

    def on_epoch(self, progress: Progress) -> None:
        """An epoch is done and evaluated."""


class TooFewScriptsError(ValueError):
    """There are not enough scripts to train on some and hold out others."""


@dataclass(frozen=True)
class TrainingData:
    """Scripts to learn from and scripts to choose by."""

    trained: Sequence[Script]
    held_out: Sequence[Script]
    facts: DataFacts

    @classmethod
    def part(cls, file: ScriptFile, plan: TrainingPlan) -> TrainingData:
        """Parts the scripts of a file.

        Raises:
            TooFewScriptsError: One of the parts would be empty.
        """
        trained, held_out = hold_out(file.scripts, plan.holdout, plan.seed)
        if not trained or not held_out:
            raise TooFewScriptsError(f"{len(file.scripts)} usable scripts cannot be parted in two")
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
    listener: Listener,
    *,
    device: str | None = None,
    checkpoint_every: int = 200,
) -> ModelCard:
    """Trains a model, or goes on with a training that was interrupted, and saves it with its card.

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
        OtherTrainingError: The folder holds another model, or an unfinished training of another kind.
    """
    finished = _finished(folder, plan, data.facts)
    if finished is not None:
        return finished
    encoder = _prepare(plan, device)
    optimizer = _optimizer(encoder.model, plan)
    checkpoints = Checkpoints(folder / CHECKPOINT_FOLDER, plan, data.facts.sha256)
    progress = checkpoints.restore(encoder.model, optimizer) or Progress()
    while not progress.is_done(plan.epochs, plan.patience):
        epoch = _Epoch(encoder, optimizer, plan, data, progress.epoch)
        while progress.batch < len(epoch.batches):
            progress = progress.after_batch(epoch.learn(progress.batch))
            listener.on_batch(progress, len(epoch.batches))
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
        weights_sha256=weights_digest(folder),
        versions=_versions(),
    )
    card.write(folder)
    checkpoints.clear()
    return card


def predict_scripts(
    encoder: PairEncoder, scripts: Sequence[Script], listener: Listener
) -> list[Mapping[Edge, float]]:
    """How likely each event of each script comes before each other."""
    predicted = []
    for done, script in enumerate(scripts, start=1):
        answers = encoder.answer(pairs_of(script.scenario, script.events))
        predicted.append(merge_orders(len(script.events), answers))
        listener.on_evaluation(done, len(scripts))
    return predicted


class _Epoch:
    """One pass over the data, a batch at a time."""

    def __init__(
        self, encoder: PairEncoder, optimizer: Any, plan: TrainingPlan, data: TrainingData, epoch: int
    ) -> None:
        self._encoder = encoder
        self._optimizer = optimizer
        self._plan = plan
        self._epoch = epoch
        self._examples: list[Example] = sample_epoch(data.trained, plan.label, plan.seed, epoch)
        self._tokens: list[Tokens] = encoder.tokenize([example.pair for example in self._examples])
        lengths = [tokens.length for tokens in self._tokens]
        self.batches = training_batches(lengths, plan.batch_size, plan.seed, epoch)

    def learn(self, index: int) -> float:
        """Makes one step and gives the batch's mean cross-entropy."""
        import torch

        batch = self.batches[index]
        steps = len(self.batches) * self._plan.epochs
        rate = self._plan.learning_rate_at(self._epoch * len(self.batches) + index, steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        model = self._encoder.model
        model.train()
        logits = self._encoder.logits([self._tokens[i] for i in batch])
        wanted = torch.tensor([self._examples[i].relation for i in batch], device=logits.device)
        loss = torch.nn.functional.cross_entropy(logits, wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _LONGEST_GRADIENT)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())


def _finished(folder: Path, plan: TrainingPlan, facts: DataFacts) -> ModelCard | None:
    try:
        card = read_card(folder)
    except CardError:
        return None
    if (card.plan, card.data) != (plan, facts):
        raise OtherTrainingError(f"{folder} holds another model: write to another folder, or remove it")
    return card


def _prepare(plan: TrainingPlan, device: str | None) -> PairEncoder:
    # The new layer is drawn while the encoder is loaded, so the seed comes first.
    require_extra()
    # Without it CUDA's matrix products are not repeatable; it is read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.manual_seed(plan.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if plan.threads:
        torch.set_num_threads(plan.threads)
    return PairEncoder.load(plan.encoder, plan.max_length, plan.precision, device=device)


def _optimizer(model: Any, plan: TrainingPlan) -> Any:
    import torch

    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        # Biases and the scales of normalisation are not decayed.
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.learning_rate, fused=model.device.type in {"cpu", "cuda"})


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("dramaturg", "sentence-transformers", "transformers", "torch"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            # Such as dramaturg itself, run from a clone that is not installed.
            continue
    return versions
