"""What can be configured of the embedding service."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from dramaturg.service.settings import Settings
from services.embedding.weights import DEFAULT_MODEL


class EmbeddingSettings(Settings):
    """Section ``embedding``.

    The matrix products run on as many threads as the linear algebra library takes: as many as there are
    cores, or ``OPENBLAS_NUM_THREADS``.
    """

    section: ClassVar[str] = "embedding"

    model: str = Field(default=DEFAULT_MODEL, min_length=1, max_length=200)
    """The name of the model that is served. Any but the default needs ``model_dir``."""
    model_dir: Path | None = None
    """The folder of the model: config.json, tokenizer.json and model.safetensors of a BERT encoder with mean
    pooling. Absent: the installed package of the default model.
    """
    weights_sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """What model.safetensors must hash to. Absent: the known hash for the default model, unchecked for
    others.
    """
    preload: bool = False
    """Whether the weights are loaded before the server listens, so that the first call is as fast as the
    next. Without it they are loaded by the first call, in about a third of a second.
    """
    batch_tokens: int = Field(default=2048, ge=256, le=65536)
    """The most tokens of one batch, padding included: about half a second of work on two cores, and how long
    a cancelled call still computes. More is not faster.
    """
    workers: int = Field(default=1, ge=1, le=64)
    """How many batches are worked on at once. One keeps all cores busy."""
    cache_bytes: int = Field(default=64 << 20, ge=0)
    """How much memory the vectors of earlier texts may take; 64 MiB hold some 35,000. 0: nothing is kept."""

    @model_validator(mode="after")
    def _found(self) -> EmbeddingSettings:
        if self.model != DEFAULT_MODEL and self.model_dir is None:
            raise ValueError(f"model_dir is needed for any model but {DEFAULT_MODEL}")
        return self
