"""What the store keeps of a run, as plain records around the contract's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    DatasetManifest,
    RunSample,
    RunSpec,
    RunState,
    RunTrouble,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.sums import ModelSums as ModelSums

ACTIVE = frozenset({RUN_STATE_PREPARING, RUN_STATE_RUNNING, RUN_STATE_PAUSED})
"""The states of a run that has not ended."""


@dataclass(frozen=True)
class NewRun:
    """A run that is to be created."""

    id: str
    """The name it gets."""
    tenant: str
    """Whose it is. Empty: nobody's in particular, where tenants are not told apart."""
    spec: RunSpec
    """What it does. The content of a dataset that the request brought is kept beside it (see ``content``)."""
    content: bytes = b""
    """The rows that the request brought."""
    request_id: str = ""
    """Makes the creation idempotent within the tenant. Empty: it is not."""
    version: str = ""
    """The version of dramaturg that creates it."""


@dataclass(frozen=True)
class Counts:
    """How far a run is; kept up to date in the transaction that changes a sample."""

    samples: int = 0
    succeeded: int = 0
    failed: int = 0
    judgements: int = 0
    abstentions: int = 0
    abstentions_by_reason: Mapping[str, int] = field(default_factory=dict)
    interrupted: int = 0
    """Samples begun by a gateway that died, and so begun again."""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Trouble:
    """What the work of a run fails of, or waits for, as it is told by who does the work."""

    description: str
    """What failed last, or is waited for, in words."""
    failures: int
    """How many attempts failed since it was told before."""
    lasted: float
    """For how many seconds now nothing but failures, or nothing, came."""
    wait: float | None
    """Seconds until the next attempt. None: it is not known."""


@dataclass(frozen=True)
class RunRecord:
    """A run as it is kept."""

    id: str
    tenant: str
    spec: RunSpec
    state: RunState.ValueType
    state_reason: str
    attempt: int
    """Raised by every rerun and extension, from 1."""
    repeat_offset: int
    """Added to the options' repeat_index: raised by reruns that ask for fresh completions."""
    counts: Counts
    manifest: DatasetManifest
    version: str
    create_time: datetime
    update_time: datetime
    start_time: datetime | None = None
    end_time: datetime | None = None
    advance_time: datetime | None = None
    """When a sample was last done, or the run began to work or went on."""
    trouble: RunTrouble | None = None
    """What its work fails of, or waits for, while none of it succeeds."""


@dataclass(frozen=True)
class NewSample:
    """A row of a dataset that is a valid request, or not."""

    index: int
    """Its place in the dataset, from 0."""
    line: int
    """The number of its line or row there, from 1."""
    sample_id: str
    tags: Mapping[str, str]
    request: bytes
    """The request, serialised. Empty where the row is none; ``failure`` is then set."""
    failure: RunSample | None = None
    """The sample as it failed at once, where the row is no valid request."""


@dataclass(frozen=True)
class SampleWork:
    """A sample that waits to be evaluated."""

    index: int
    line: int
    sample_id: str
    tags: Mapping[str, str]
    request: bytes
    tries: int
    """How often it was begun in this attempt of the run by gateways that died."""


@dataclass(frozen=True)
class SampleOutcome:
    """A sample that is done."""

    sample: RunSample
    """As it is listed, its result or error included."""
    results: Sequence[RunResult]
    """Its judgements, flat; their words may be missing. Empty where it failed."""
    usage: Usage
    """What it cost, failed tries that could be counted included."""
    hindered: bool = False
    """Whether something is missing in its result for a reason that may pass."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a run."""

    cursor: int
    """Ascending within the run, with gaps."""
    time: datetime
    kind: str
    """"state" or "progress"."""
