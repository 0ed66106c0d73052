"""Settings of the edge service."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from dramaturg.service.settings import Settings


class EdgesSettings(Settings):
    section: ClassVar[str] = "edges"

    model_dir: Path | None = None
    """The folder written by ``research graphs train``. Absent: calls fail with instructions to train a
    model.
    """
    preload: bool = False
    """Whether to load the model before the server listens. Otherwise the first call loads it, which takes
    some ten seconds.
    """
    batch_size: int = Field(default=64, ge=1, le=4096)
    """The maximum number of pairs of a batch, which bounds the work after a cancellation. A model that reads
    all events together processes at least one script.
    """
    workers: int = Field(default=1, ge=1, le=64)
    """The number of batches processed concurrently. One keeps all cores busy."""
    threads: int = Field(default=0, ge=0, le=1024)
    """Threads of the linear algebra. 0: one for each core."""
    device: str | None = Field(default=None, max_length=100)
    """The torch device, e.g. "cpu" or "cuda:0". Absent: the fastest available."""
