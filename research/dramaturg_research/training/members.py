"""Training of ensembles: the members in sequence, then a common threshold."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Protocol

from dramaturg_research.training.evaluation import choose_threshold
from dramaturg_research.training.progress import epoch_facts
from dramaturg_research.training.trainer import (
    TrainingData,
    TrainingListener,
    finished_card,
    predict_scripts,
    train,
    training_versions,
)
from services.edges.card import EpochFacts, ModelCard, member_folders, weights_digest
from services.edges.model import load_members
from services.edges.plan import TrainingPlan


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
