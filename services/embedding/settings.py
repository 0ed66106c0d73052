"""Settings of the embedding service."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dramaturg.service.settings import Settings
from services.embedding.weights import DEFAULT_MODEL


class EndpointSettings(BaseModel):
    """An endpoint that speaks the OpenAI embeddings protocol, for the engine "openai"."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    base_url: str = Field(default="https://api.openai.com/v1", pattern="^https?://")
    """Where it is, version included."""
    api_key_env: str = ""
    """The environment variable that holds its key."""
    api_key_file: Path | None = None
    """The file that holds its key. Without either, calls carry no credentials of use."""
    batch_texts: int = Field(default=32, ge=1, le=2048)
    """The most texts of one request. Some servers take no more than 32, OpenAI takes 2,048."""
    max_characters: int = Field(default=8000, ge=1)
    """Where texts are cut off: the protocol does not tell the model's window, and most endpoints refuse what
    is over it. OpenAI's models have 8,191 tokens.
    """
    retries: int = Field(default=3, ge=0, le=10)
    """The retries of a request that fails for a transient reason; waits double, Retry-After is honoured."""
    timeout_seconds: float = Field(default=60, gt=0)
    """The longest wait for one answer of the endpoint."""

    @model_validator(mode="after")
    def _one_key(self) -> EndpointSettings:
        if self.api_key_env and self.api_key_file is not None:
            raise ValueError("api_key_env and api_key_file exclude each other")
        return self


class EmbeddingSettings(Settings):
    """Section ``embedding``.

    The matrix products run on as many threads as the linear algebra library takes: as many as there are
    cores, or ``OPENBLAS_NUM_THREADS``.
    """

    section: ClassVar[str] = "embedding"

    engine: Literal["light", "sentence-transformers", "openai"] = "light"
    """The encoder: our own forward pass in NumPy; the sentence-transformers library, which needs the extra
    [embeddings] and supports every architecture; or an endpoint. The first two give the same vectors
    for the same model.
    """
    model: str = Field(default=DEFAULT_MODEL, min_length=1, max_length=200)
    """The name of the model that is served. With the engine "light" any but the default needs ``model_dir``;
    with "sentence-transformers" it is an id on the hub of that library where there is no folder; with
    "openai" it is the endpoint's name for it.
    """
    model_dir: Path | None = None
    """The folder of the model; for the engine "light": config.json, tokenizer.json and model.safetensors of a
    BERT encoder with mean pooling. Absent: the installed package of the default model.
    """
    endpoint: EndpointSettings = EndpointSettings()
    """The endpoint of the engine "openai"."""
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
        if self.engine == "light" and self.model != DEFAULT_MODEL and self.model_dir is None:
            raise ValueError(f"model_dir is needed for any model but {DEFAULT_MODEL}")
        if self.engine == "openai" and self.model_dir is not None:
            raise ValueError("model_dir is of no use to the engine openai")
        if self.weights_sha256 is not None and not self._has_folder:
            raise ValueError("weights_sha256 can be checked only of a model in a folder")
        return self

    @property
    def _has_folder(self) -> bool:
        local = self.model_dir is not None or self.model == DEFAULT_MODEL
        return local and self.engine != "openai"
