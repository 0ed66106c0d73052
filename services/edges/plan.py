"""What decides a training besides its data."""

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
    """What is learnt of a pair, and so what a probability that is served means."""

    PRECEDES = "precedes"
    """The first event comes before the second, directly or not: an edge of the transitive closure."""
    EDGE = "edge"
    """The first comes right before the second: an edge of the transitive reduction."""
    BOTH = "both"
    """A mean of the two: two thirds of the probability of ``PRECEDES``, one of that of ``EDGE``. Only where
    events are read together, as both are learnt then whatever is served."""


class Precision(Enum):
    """The numbers that matrices are multiplied in, when a model is trained and when it is served."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """Half the time on processors that have it, and about as good; weights stay in float32."""


_TOGETHER_DEFAULTS: dict[str, Any] = {
    "epochs": 10,
    "patience": 4,
    "batch_size": 16,
    "learning_rate": 3e-4,
    "max_length": 512,
}
"""Where they differ from those of pairs: one script holds what some thirty pairs do."""


class TrainingPlan(BaseModel):
    """The settings of one training. Equal plans over equal data give equal models on one machine.

    Defaults are those of pairs; ``Reading.TOGETHER`` has its own of epochs (10), patience (4), batch size
    (16), learning rate (3e-4) and length (512).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str = Field(min_length=1)
    """The folder or hub id of the encoder to start from."""
    reading: Reading = Reading.PAIRS
    """What the encoder reads at a time. Cards from before there was a choice are of pairs."""
    label: Label = Label.PRECEDES
    """What is learnt of a pair. Where events are read together, it only decides what is served."""
    seed: int = 0
    """Decides the held-out scripts, the new layers, the order of examples and dropout."""
    epochs: int = Field(default=4, ge=1, le=1000)
    """The most passes over the data. The learning rate falls to 0 over them."""
    patience: int = Field(default=1, ge=1, le=1000)
    """After how many passes without a better F1 on the held-out scripts the training stops."""
    batch_size: int = Field(default=32, ge=1, le=4096)
    """Examples of one step: pairs, or scripts."""
    learning_rate: float = Field(default=1e-4, gt=0, lt=1)
    """The highest, of the encoder; reached after the warm-up."""
    warmup: float = Field(default=0.06, ge=0, lt=1)
    """The share of the steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.01, ge=0, lt=1)
    """Of AdamW (Loshchilov and Hutter, 2019)."""
    max_length: int = Field(default=48, ge=8, le=4096)
    """The most tokens of what is read at a time. A longer pair is cut; a longer script is refused."""
    holdout: float = Field(default=0.1, gt=0, le=0.5)
    """The share of the scripts that is not trained on but chosen by."""
    members: int = Field(default=1, ge=1, le=100)
    """How many models are trained, with seeds that follow each other; their probabilities are averaged."""
    precision: Precision = Precision.FLOAT32
    """Of the matrix products."""
    threads: int = Field(default=0, ge=0, le=1024)
    """Threads of the linear algebra; 0: as many as the library takes. They change the last digits of sums."""

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
        """How one member of an ensemble is trained.

        Args:
            member: From 0. The first has the plan's seed.
        """
        # A member keeps the pass that orders best; only what all of them answer is a mean of the two.
        label = Label.PRECEDES if self.label is Label.BOTH else self.label
        return self.model_copy(update={"members": 1, "seed": self.seed + member, "label": label})

    def learning_rate_at(self, step: int, steps: int) -> float:
        """The learning rate of one step: a straight rise, then a straight fall to 0.

        Args:
            step: From 0.
            steps: All steps of all epochs.
        """
        rise = self.warmup * steps
        if step < rise:
            return self.learning_rate * (step + 1) / (rise + 1)
        return self.learning_rate * (steps - step) / max(1.0, steps - rise)
