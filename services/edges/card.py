"""The model card, stored beside the weights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from services.edges.plan import TrainingPlan

CARD_FILE = "edge_model.json"
WEIGHTS_FILE = "model.safetensors"

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class CardError(ValueError):
    """The folder has no edge model, or its card describes other weights."""


class DataFacts(BaseModel):
    """The training data of a model."""

    model_config = _FROZEN

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Of the file, in lower-case hexadecimal."""
    trained_scripts: int = Field(ge=1)
    """The number of training scripts."""
    held_out_scripts: int = Field(ge=1)
    """The number of held-out scripts, used to choose the epoch and the threshold."""
    skipped: dict[str, str]
    """The reason for each unused record, by id."""


class EpochFacts(BaseModel):
    """The result of one epoch.

    The scores are macro means over the held-out scripts. The epoch and its threshold are chosen by them, so
    the scores of the chosen epoch are optimistic.
    """

    model_config = _FROZEN

    loss: float
    """The mean training loss, a cross-entropy in nats."""
    threshold: float = Field(ge=0, le=1)
    """The threshold with the best F1."""
    f1: float = Field(ge=0, le=1)
    """F1 of edges at that threshold."""
    precision: float = Field(ge=0, le=1)
    """Hits / predicted."""
    recall: float = Field(ge=0, le=1)
    """Hits / wanted."""
    exact_matches: int = Field(ge=0)
    """The number of scripts with all edges correct."""


class ModelCard(BaseModel):
    model_config = _FROZEN

    format: Literal[1] = 1
    """The version of this format."""
    plan: TrainingPlan
    """The settings of the training."""
    data: DataFacts
    epochs: tuple[EpochFacts, ...]
    """The epochs, in order. An ensemble has one entry, the scores of all members together; its members have
    cards of their own."""
    chosen_epoch: int = Field(ge=0)
    """The epoch whose weights were kept, from 0."""
    weights_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """The result of ``weights_digest``."""
    versions: dict[str, str]
    """The versions of the packages used for training."""

    @model_validator(mode="after")
    def _chosen(self) -> ModelCard:
        if self.chosen_epoch >= len(self.epochs):
            raise ValueError("chosen_epoch is none of the epochs")
        return self

    @property
    def held_out(self) -> EpochFacts:
        return self.epochs[self.chosen_epoch]

    @property
    def threshold(self) -> float:
        """Edges with a probability above this are predicted."""
        return self.held_out.threshold

    def write(self, folder: Path) -> None:
        (folder / CARD_FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @property
    def facts(self) -> dict[str, str]:
        """The facts about the model that go into provenance."""
        return {
            "encoder": self.plan.encoder,
            "reading": self.plan.reading.value,
            "label": self.plan.label.value,
            "members": str(self.plan.members),
            "threshold": f"{self.threshold:g}",
            "weights_sha256": self.weights_sha256,
            "data_sha256": self.data.sha256,
            "seed": str(self.plan.seed),
            "held_out_f1": f"{self.held_out.f1:.4f}",
        }


def read_card(folder: Path) -> ModelCard:
    """Reads a model's card and checks the digest of the weights.

    Raises:
        CardError: The card is missing, unreadable or of other weights.
    """
    try:
        card = ModelCard.model_validate_json((folder / CARD_FILE).read_bytes())
    except OSError as error:
        raise CardError(f"{folder} holds no edge model: it has no {CARD_FILE}") from error
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise CardError(f"{folder / CARD_FILE} cannot be read at {where or 'its start'}") from error
    for member in member_folders(folder, card.plan):
        if not (member / WEIGHTS_FILE).is_file():
            raise CardError(f"{member} has no {WEIGHTS_FILE}")
    if weights_digest(folder, card.plan) != card.weights_sha256:
        raise CardError(f"{folder / CARD_FILE} has the digest of other weights than {WEIGHTS_FILE}")
    return card


def member_folders(folder: Path, plan: TrainingPlan) -> list[Path]:
    """The folders with weights: the model's folder, or one for each member of an ensemble."""
    if plan.members == 1:
        return [folder]
    return [folder / f"member-{number}" for number in range(1, plan.members + 1)]


def weights_digest(folder: Path, plan: TrainingPlan) -> str:
    """The SHA-256 of a model's weights, in lower-case hexadecimal; of an ensemble, that of its members'."""
    digests = [_file_digest(member / WEIGHTS_FILE) for member in member_folders(folder, plan)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
