"""What differs between deployments of the alignment service."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dramaturg.service.settings import Settings


class AlignmentSettings(Settings):
    """Settings of the alignment service."""

    section: ClassVar[str] = "alignment"

    embedding_target: str = ""
    """Where EmbeddingService listens, as ``host:port``. Empty: the metrics "embedding" and
    "embedding-greedy" are undefined, and the response says why.
    """
    embedding_model: str = ""
    """The model whose vectors are compared. Empty: the default of EmbeddingService."""
    workers: int = Field(default=2, ge=1, le=64)
    """How many requests are computed at once, each in a thread of its own."""
    waiting: int = Field(default=64, ge=0)
    """How many requests may wait for a thread; the next is refused with ERROR_REASON_OVERLOADED. Each one
    holds its message, up to the server's ``max_message_bytes``.
    """
