"""The settings of a training."""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Reading(Enum):
    """The unit of the encoder's input."""

    TOGETHER = "together"
    """The scenario and all events of a script."""
    PAIRS = "pairs"
    """The scenario and two events (proScript, section 5.1)."""


class Label(Enum):
    """The relation of a pair that is trained, and the meaning of the served probability."""

    PRECEDES = "precedes"
    """The first event precedes the second, directly or not: an edge of the transitive closure."""
    EDGE = "edge"
    """The first event directly precedes the second: an edge of the transitive reduction."""
    BOTH = "both"
    """A weighted mean: two thirds ``PRECEDES``, one third ``EDGE``. Requires ``Reading.TOGETHER``, which
    trains both.
    """


class Precision(Enum):
    """The precision of matrix products, in training and serving."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """Takes half the time on processors that support it, at similar quality; weights stay in float32."""


_TOGETHER_DEFAULTS: dict[str, Any] = {
    "epochs": 10,
    "patience": 4,
    "batch_size": 16,
    "learning_rate": 3e-4,
    "max_length": 512,
}
"""Defaults that differ from pairs; a script has as much information as some thirty pairs."""


class TrainingPlan(BaseModel):
    """The settings of one training. Equal plans over equal data give equal models on one machine.

    Defaults are those of pairs; ``Reading.TOGETHER`` has its own of epochs (10), patience (4), batch size
    (16), learning rate (3e-4) and length (512).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str = Field(min_length=1)
    """The folder or hub id of the encoder to start from."""
    reading: Reading = Reading.PAIRS
    """The unit of the encoder's input. Absent in old cards, which are of pairs."""
    label: Label = Label.PRECEDES
    """The trained relation. With ``Reading.TOGETHER`` it only affects the served probability."""
    seed: int = 0
    """Seeds the split, new layers, the order of examples and dropout."""
    epochs: int = Field(default=4, ge=1, le=1000)
    """The maximum number of epochs. The learning rate decays to 0 over them."""
    patience: int = Field(default=1, ge=1, le=1000)
    """Training stops after this number of epochs without a better F1 on the held-out scripts."""
    batch_size: int = Field(default=32, ge=1, le=4096)
    """Examples of one step: pairs or scripts."""
    learning_rate: float = Field(default=1e-4, gt=0, lt=1)
    """The maximum learning rate of the encoder, reached after the warm-up."""
    warmup: float = Field(default=0.06, ge=0, lt=1)
    """The share of the steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.01, ge=0, lt=1)
    """The weight decay of AdamW (Loshchilov and Hutter, 2019)."""
    max_length: int = Field(default=48, ge=8, le=4096)
    """The maximum number of tokens of an input. Longer pairs are truncated; longer scripts are refused."""
    holdout: float = Field(default=0.1, gt=0, le=0.5)
    """The share of held-out scripts."""
    members: int = Field(default=1, ge=1, le=100)
    """The number of models, with consecutive seeds; their probabilities are averaged."""
    precision: Precision = Precision.FLOAT32
    """The precision of matrix products."""
    threads: int = Field(default=0, ge=0, le=1024)
    """Threads of the linear algebra; 0: the library's default. The number affects rounding."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_reading(cls, given: Any) -> Any:
        together = (Reading.TOGETHER, Reading.TOGETHER.value)
        if isinstance(given, dict) and given.get("reading") in together:
            return {**_TOGETHER_DEFAULTS, **given}
        return given

    @model_validator(mode="after")
    def _both_are_learnt_together(self) -> TrainingPlan:
        if self.label is Label.BOTH and self.reading is not Reading.TOGETHER:
            raise ValueError("the label both needs the reading together")
        return self

    def for_member(self, member: int) -> TrainingPlan:
        """The plan of one member of an ensemble.

        Args:
            member: From 0. The first has the plan's seed.
        """
        # Members choose their epoch by precedence; only the ensemble serves the weighted mean.
        label = Label.PRECEDES if self.label is Label.BOTH else self.label
        return self.model_copy(update={"members": 1, "seed": self.seed + member, "label": label})

    def learning_rate_at(self, step: int, steps: int) -> float:
        """The learning rate of one step: linear warm-up, then linear decay to 0.

        Args:
            step: From 0.
            steps: All steps of all epochs.
        """
        rise = self.warmup * steps
        if step < rise:
            return self.learning_rate * (step + 1) / (rise + 1)
        return self.learning_rate * (steps - step) / max(1.0, steps - rise)
