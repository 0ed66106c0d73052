"""What can be configured of runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from dramaturg.service.settings import Settings
from gateway.runs.datasets import STORES


def default_url() -> str:
    """A SQLite file in the user's data folder (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return f"sqlite:///{Path(home) / 'dramaturg' / 'runs.sqlite3'}"


class RunsSettings(Settings):
    """Section ``runs``."""

    section: ClassVar[str] = "runs"

    enabled: bool = True
    """Whether this gateway serves RunService and works on runs. A gateway that a single command starts for
    itself does neither: the store is the user's, and a SQLite file serves one gateway at a time.
    """
    url: str = Field(default_factory=default_url, min_length=1, repr=False)
    """The store: ``sqlite:///path`` for one gateway, ``postgresql://...`` for any number of them. The engine
    keeps its own tables in the schema "dbos" there, on SQLite in a second file beside the first.
    """
    executor: str = Field(default="", pattern="^[A-Za-z0-9._-]{0,63}$")
    """The name of this gateway among those that share a store on PostgreSQL. Empty: a new one for every
    process, whose work others take over once its lease has run out. One that stays the same over restarts
    lets the gateway take up its own work at once; it must then be no other's.
    """
    dataset_folders: tuple[Path, ...] = ()
    """Local files are read as datasets only below these folders. Empty: none is read; requests bring their
    rows, or name an object store."""
    dataset_stores: tuple[str, ...] = STORES
    """The kinds of address, besides local files, that datasets are read from, without "://"."""
    concurrent_samples: int = Field(default=256, ge=1, le=4096)
    """The most samples that this gateway evaluates at once, of all runs together."""
    concurrent_batches: int = Field(default=64, ge=1, le=1000)
    """The most batches of samples that this gateway works on at once, two at most of one run, three where it
    is the only gateway. Further ones wait; tenants are served equally."""
    concurrent_runs: int = Field(default=64, ge=1, le=1000)
    """The most runs that this gateway looks after at once. Further ones take turns of ``control_seconds``;
    tenants have equally many."""
    outage_seconds: float = Field(default=120, ge=0)
    """How long judges that cannot be reached are waited for before the tries of a sample count."""
    stall_seconds: float = Field(default=600, ge=0)
    """How long a run may fail, for an error that is no sample's, without a sample done in between; then it
    ends."""
    control_seconds: float = Field(default=0.5, gt=0, le=5)
    """How often the state of a run is looked at: after so long a cancelled run begins no further call."""
    lease_seconds: float = Field(default=20, ge=1)
    """For how long the others on PostgreSQL believe that this gateway lives without hearing of it. A gateway
    that could not say so for as long ends its process: its work is somebody else's by then."""
    renew_seconds: float = Field(default=5, gt=0)
    """How often it says so."""
    drain_seconds: float = Field(default=20, ge=0)
    """How long samples under way may go on when the gateway is stopped; then they are begun again elsewhere,
    or after the restart."""
    engine_connections: int = Field(default=10, ge=2, le=100)
    """The connections of the engine to PostgreSQL, besides those of the store."""
    migrate: bool = True
    """Whether the engine's tables are created and brought up to date at the start. Off where a job does that
    with more rights."""

    @model_validator(mode="after")
    def _consistent(self) -> RunsSettings:
        if self.renew_seconds * 2 > self.lease_seconds:
            raise ValueError("renew_seconds must be at most half of lease_seconds: one renewal may fail")
        return self
