"""What decides a training besides its data."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict, Field


class Label(Enum):
    """What is learnt of a pair, and so what a probability that is served means."""

    PRECEDES = "precedes"
    """The first event comes before the second, directly or not: an edge of the transitive closure."""
    EDGE = "edge"
    """The first comes right before the second: an edge of the transitive reduction."""


class Precision(Enum):
    """The numbers that matrices are multiplied in, when a model is trained and when it is served."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """Half the time on processors that have it, and about as good; weights stay in float32."""


class TrainingPlan(BaseModel):
    """The settings of one training. Equal plans over equal data give equal models on one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: str = Field(min_length=1)
    """The folder or hub id of the encoder to start from."""
    label: Label = Label.PRECEDES
    """What is learnt of a pair."""
    seed: int = 0
    """Decides the held-out scripts, the new layer, the order of examples and dropout."""
    epochs: int = Field(default=4, ge=1, le=1000)
    """The most passes over the data. The learning rate falls to 0 over them."""
    patience: int = Field(default=1, ge=1, le=1000)
    """After how many passes without a better F1 on the held-out scripts the training stops."""
    batch_size: int = Field(default=32, ge=1, le=4096)
    """Examples of one step."""
    learning_rate: float = Field(default=1e-4, gt=0, lt=1)
    """The highest; reached after the warm-up."""
    warmup: float = Field(default=0.06, ge=0, lt=1)
    """The share of the steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.01, ge=0, lt=1)
    """Of AdamW (Loshchilov and Hutter, 2019)."""
    max_length: int = Field(default=48, ge=8, le=4096)
    """The most tokens of a pair with its scenario; longer texts are cut."""
    holdout: float = Field(default=0.1, gt=0, le=0.5)
    """The share of the scripts that is not trained on but chosen by."""
    precision: Precision = Precision.FLOAT32
    """Of the matrix products."""
    threads: int = Field(default=0, ge=0, le=1024)
    """Threads of the linear algebra; 0: as many as the library takes. They change the last digits of sums."""

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
