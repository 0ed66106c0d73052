"""Settings of runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from dramaturg.service.settings import Settings
from gateway.processes.process import ProcessLimits
from gateway.runs.dataset_access import URI_SCHEMES, DatasetAccess


def default_url() -> str:
    """A SQLite file in the user's data folder (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return f"sqlite:///{Path(home) / 'dramaturg' / 'runs.sqlite3'}"


class RunsSettings(Settings):
    """Section ``runs``."""

    section: ClassVar[str] = "runs"

    enabled: bool = True
    """Whether the gateway serves RunService and executes runs. A gateway that a single command starts for
    itself has a store of that command's own, or none: a SQLite file serves one gateway at a time."""
    url: str = Field(default_factory=default_url, min_length=1, repr=False)
    """The run store: ``sqlite:///path`` for one gateway, ``postgresql://...`` for any number. The workflow
    engine keeps its tables in the schema "dbos" of that database, on SQLite in a second file beside it."""
    dataset_folders: tuple[Path, ...] = ()
    """The folders from which local files are read as datasets. Empty: none; requests carry their rows or name
    an object store. "{tenant}" stands for the caller's tenant."""
    dataset_schemes: tuple[str, ...] = URI_SCHEMES
    """The URI schemes, besides local files, that datasets are read from, without "://"."""
    dataset_prefixes: tuple[str, ...] | None = None
    """The addresses below which objects are read, for example "s3://data/{tenant}/"; "{tenant}" stands for
    the caller's tenant. Absent: callers with a tenant read no objects, callers without one all."""
    dataset_node_credentials: bool = False
    """Whether object stores may be read with credentials that the metadata address of the node gives (AWS,
    Google Cloud), as workload identity on GKE needs."""
    max_dataset_rows: int = Field(default=1_000_000, ge=1)
    """The most rows of a dataset, valid or not. A run of a larger one fails before a row is stored."""
    max_dataset_bytes: int = Field(default=4 << 30, ge=1)
    """The most bytes of a dataset after decompression and decoding. A run of a larger one fails."""
    max_upload_bytes: int = Field(default=1 << 30, ge=1)
    """The most bytes of a dataset that is uploaded. The store keeps it; a gateway copies it to a temporary
    file when a run reads it."""
    upload_expiry_seconds: float = Field(default=3600, gt=0)
    """How long an incomplete upload is kept without progress."""
    max_label_sets: int = Field(default=200, ge=1)
    """The most label sets of a tenant."""
    dataset_memory_bytes: int = Field(default=256 << 20, ge=64 << 20)
    """The memory of a process that reads a dataset, besides its code. A gateway reads two at once."""
    max_concurrent_samples: int = Field(default=256, ge=1, le=4096)
    """The most samples the gateway evaluates at once, over all runs."""
    max_concurrent_batches: int = Field(default=64, ge=1, le=1000)
    """The most batches of samples the gateway works on at once, at most two of one run, three if it is
    the only gateway. Further batches wait; tenants are served equally."""
    max_concurrent_runs: int = Field(default=64, ge=1, le=1000)
    """The most runs the gateway orchestrates at once. Further ones take turns of ``poll_seconds``, shared
    equally by tenants."""
    outage_timeout_seconds: float = Field(default=120, ge=0)
    """How long unreachable judges are retried before the attempts of a sample count."""
    stall_timeout_seconds: float = Field(default=600, ge=0)
    """How long a run may fail for errors outside its samples without completing one; then it fails."""
    poll_seconds: float = Field(default=0.5, gt=0, le=5)
    """How often the state of a run is read: a cancelled run starts no call after it."""
    batch_poll_seconds: float = Field(default=60, gt=0, le=3600)
    """The time after which a sample whose model calls wait for batches is evaluated again, the first time. It
    doubles each time, up to the fifteenfold."""
    lease_seconds: float = Field(default=20, ge=1)
    """The lease of a gateway on PostgreSQL. A gateway that cannot renew it in that time ends its process,
    since other gateways take over its work."""
    lease_renewal_seconds: float = Field(default=5, gt=0)
    """How often the lease is renewed."""
    drain_timeout_seconds: float = Field(default=20, ge=0)
    """How long samples in progress may continue when the gateway stops. Those left are evaluated again by
    another gateway, or after the restart."""
    engine_pool_size: int = Field(default=10, ge=2, le=100)
    """The connections of the workflow engine to PostgreSQL, besides those of the store."""

    @property
    def dataset_access(self) -> DatasetAccess:
        return DatasetAccess(
            self.dataset_folders,
            self.dataset_schemes,
            self.dataset_prefixes,
            self.max_dataset_rows,
            self.max_dataset_bytes,
        )

    @property
    def dataset_limits(self) -> ProcessLimits:
        return ProcessLimits(self.dataset_memory_bytes, self.dataset_node_credentials)

    @model_validator(mode="after")
    def _consistent(self) -> RunsSettings:
        if self.lease_renewal_seconds * 2 > self.lease_seconds:
            raise ValueError(
                "lease_renewal_seconds must be at most half of lease_seconds: one renewal may fail"
            )
        return self
