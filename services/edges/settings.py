"""What can be configured of the edge service."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from dramaturg.service.settings import Settings


class EdgesSettings(Settings):
    section: ClassVar[str] = "edges"

    model_dir: Path | None = None
    """The folder that ``dramaturg graphs train`` wrote. Absent: calls are told to train a model first."""
    preload: bool = False
    """Whether the model is loaded before the server listens, so that the first call is as fast as the next.
    Without it the first call loads it, in some ten seconds.
    """
    batch_size: int = Field(default=64, ge=1, le=4096)
    """The most pairs of one batch: how long a cancelled call still computes. A model that reads all events
    together reads at least one script at a time, whatever its pairs.
    """
    workers: int = Field(default=1, ge=1, le=64)
    """How many batches are worked on at once. One keeps all cores busy."""
    threads: int = Field(default=0, ge=0, le=1024)
    """Threads of the linear algebra. 0: as many as there are cores."""
    device: str | None = Field(default=None, max_length=100)
    """Where the model runs, as torch names it, such as "cpu" or "cuda:0". Absent: the fastest there is."""
