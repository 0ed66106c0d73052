"""Loading of trained models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from services.edges.card import CardError, ModelCard, member_folders, read_card
from services.edges.encoder import INSTALL_COMMAND, EncoderError, ExtraMissingError, PairEncoder
from services.edges.inference import EdgeModel, Ensemble
from services.edges.joint_encoder import JointEncoder
from services.edges.plan import Reading, TrainingPlan

TRAIN_COMMAND = "dramaturg research graphs train DATA -o MODEL"


class ModelMissingError(Exception):
    """The trained model or the package to run it is missing.

    Attributes:
        command: The command that creates or installs it.
    """

    def __init__(self, message: str, command: str) -> None:
        super().__init__(f"{message}: run {command}")
        self.command = command


@dataclass(frozen=True)
class TrainedModel:
    encoder: EdgeModel
    card: ModelCard


def load_model(folder: Path | None, *, device: str | None = None, threads: int = 0) -> TrainedModel:
    """Loads a model written by ``dramaturg research graphs train``.

    Args:
        folder: The model's folder.
        device: The torch device; absent: the fastest available.
        threads: Threads of the linear algebra; 0: one for each core.

    Raises:
        ModelMissingError: No folder is configured, it has no edge model, or sentence-transformers is missing.
    """
    if folder is None:
        raise ModelMissingError(
            "no edge model is configured; train one and name its folder in DRAMATURG_EDGES_MODEL_DIR",
            TRAIN_COMMAND,
        )
    try:
        card = read_card(folder)
        encoder = load_members(folder, card.plan, device=device)
    except ExtraMissingError as error:
        raise ModelMissingError("sentence-transformers is not installed", INSTALL_COMMAND) from error
    except (CardError, EncoderError) as error:
        raise ModelMissingError(str(error), TRAIN_COMMAND) from error
    if threads:
        import torch

        torch.set_num_threads(threads)
    return TrainedModel(encoder, card)


def load_members(folder: Path, plan: TrainingPlan, *, device: str | None = None) -> EdgeModel:
    """Loads the weights of a model; several members become an ensemble.

    Raises:
        ExtraMissingError: sentence-transformers is not installed.
        EncoderError: The weights do not match the plan.
    """
    members = [_load_member(member, plan, device) for member in member_folders(folder, plan)]
    return members[0] if len(members) == 1 else Ensemble(members)


def _load_member(folder: Path, plan: TrainingPlan, device: str | None) -> EdgeModel:
    if plan.reading is Reading.TOGETHER:
        return JointEncoder.load(folder, plan, device=device)
    return PairEncoder.load(str(folder), plan.max_length, plan.precision, device=device)
