"""The settings of the graph service."""

from __future__ import annotations

import os
from typing import ClassVar

from pydantic import Field

from dramaturg.service.settings import Settings


class GraphSettings(Settings):
    """Settings of the graph service."""

    section: ClassVar[str] = "graph"

    solvers: int = Field(default_factory=lambda: max(1, (os.cpu_count() or 2) // 2), ge=1, le=64)
    """The maximum number of solver processes. Each uses one processor and some 100 MB; further calls wait."""
    threads: int = Field(default=2, ge=1, le=16)
    """The maximum number of threads that parse, check and score graphs."""
    time_limit_seconds: float = Field(default=10.0, gt=0)
    """The search time of requests without a time limit."""
    maximum_time_limit_seconds: float = Field(default=120.0, gt=0)
    """The maximum search time of a request."""
