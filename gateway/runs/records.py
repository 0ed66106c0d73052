"""The records of the run store, around the messages of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeRegistration
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import JudgeMonitor
from dramaturg.api.evaluation.v1.label_service_pb2 import LabelItem, LabelSet
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    DatasetFormat,
    DatasetManifest,
    RunIncident,
    RunOutcome,
    RunSample,
    RunSpec,
    RunState,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from dramaturg.judge.provenance import total_usage
from dramaturg.results.coverage import coverage
from dramaturg.results.means import ModelSums as ModelSums

ACTIVE = frozenset({RUN_STATE_PREPARING, RUN_STATE_RUNNING, RUN_STATE_PAUSED})
"""The states of a run that has not ended."""


@dataclass(frozen=True)
class NewRun:
    """A run to create."""

    id: str
    tenant: str
    """Empty if tenants are not distinguished."""
    spec: RunSpec
    """Without the content of the dataset, which is stored apart."""
    content: bytes = b""
    """The rows that the request carries."""
    request_id: str = ""
    """Makes the creation idempotent within the tenant. Empty: it is not."""
    version: str = ""
    """The version of dramaturg that creates it."""
    creator: str = ""
    """The principal that creates it. Empty: callers are not authenticated."""


@dataclass(frozen=True)
class NewDataset:
    """A dataset to upload."""

    id: str
    """The SHA-256 of its content, in lower-case hexadecimal."""
    tenant: str
    byte_count: int
    display_name: str
    format: DatasetFormat.ValueType


@dataclass(frozen=True)
class DatasetRecord(NewDataset):
    """An uploaded dataset, or one that is being uploaded."""

    number: int
    """Numbers are ascending by the time of creation."""
    received: int
    """The bytes received."""
    is_ready: bool
    """Whether the content is complete and has the SHA-256."""
    create_time: datetime
    update_time: datetime


@dataclass(frozen=True)
class NewLabelItem:
    """An item to label, with what its annotators do not see."""

    item: LabelItem
    sample_id: str
    model: str
    opponent: str
    """The model of the second text of a preference. Empty: none."""
    judged: float | None
    """The value that the judge gave. None: it abstained."""
    probability: float | None = None
    """The probability with which it was drawn. None: uniform, by a release that kept none."""


@dataclass(frozen=True)
class NewLabelSet:
    """A label set to create."""

    description: LabelSet
    """Without time, progress and agreement."""
    tenant: str
    items: Sequence[NewLabelItem]
    """In the order in which they are labelled."""
    request_id: str = ""
    """Makes the creation idempotent within the tenant. Empty: it is not."""


@dataclass(frozen=True)
class LabelSetRecord:
    """A stored label set."""

    number: int
    """Numbers are ascending by the time of creation."""
    description: LabelSet
    """Without progress and agreement."""


@dataclass(frozen=True)
class Label:
    """The label that an annotator gave to an item."""

    position: int
    annotator: str
    label: str
    note: str
    update_time: datetime


@dataclass(frozen=True)
class Counts:
    """The progress of a run, updated in the transaction that changes a sample."""

    samples: int = 0
    succeeded: int = 0
    failed: int = 0
    failures_by_reason: Mapping[str, int] = field(default_factory=dict)
    judgements: int = 0
    abstentions: int = 0
    abstentions_by_reason: Mapping[str, int] = field(default_factory=dict)
    interrupted: int = 0
    """Samples that were in progress at the crash of a gateway, and were started again."""
    usage: Usage = field(default_factory=Usage)
    gold_answers: GoldAnswerFigures = field(default_factory=GoldAnswerFigures)

    @property
    def done(self) -> int:
        """Samples that succeeded or failed."""
        return self.succeeded + self.failed

    @property
    def left(self) -> int:
        """Samples that are not done."""
        return self.samples - self.done

    @property
    def judged(self) -> int:
        """Judgements that do not abstain."""
        return self.judgements - self.abstentions

    @property
    def coverage(self) -> float | None:
        """See ``RunProgress.coverage``. None: no sample is done."""
        return coverage(self.succeeded, self.done, self.judgements, self.abstentions_by_reason)


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens and US dollars. Calls of unknown price cost 0 dollars."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.tokens + other.tokens, self.usd + other.usd)

    def __sub__(self, other: Spending) -> Spending:
        return Spending(self.tokens - other.tokens, self.usd - other.usd)

    @classmethod
    def of(cls, usage: Usage) -> Spending:
        """The tokens and cost of a usage, bounded as in ``dramaturg.judge.provenance``."""
        bounded = total_usage([usage])
        return cls(bounded.prompt_token_count + bounded.completion_token_count, bounded.cost_usd)


@dataclass(frozen=True)
class Incident:
    """Failures of a run, or a wait, as the engine reports them while no attempt succeeds."""

    description: str
    """The last failure, or the call that the run waits for."""
    failures: int
    """Failed attempts since the last report."""
    lasted: float
    """Seconds since the first failure, or since an attempt last ended."""
    wait: float | None
    """Seconds until the next attempt. None: unknown."""


@dataclass(frozen=True)
class RunRecord:
    """A stored run."""

    id: str
    tenant: str
    spec: RunSpec
    state: RunState.ValueType
    state_reason: str
    outcome: RunOutcome.ValueType
    attempt: int
    """From 1, raised by each rerun and extension."""
    repeat_offset: int
    """Added to the repeat_index of the options; raised by reruns that request new completions."""
    counts: Counts
    manifest: DatasetManifest
    version: str
    create_time: datetime
    update_time: datetime
    start_time: datetime | None = None
    end_time: datetime | None = None
    cursor: int = 0
    """The cursor of the newest event. Every change of the run, its samples or its results advances it."""
    advance_time: datetime | None = None
    """When a sample was last completed, or the run was started or resumed."""
    incident: RunIncident | None = None
    """The current failures. None: the last attempt succeeded."""
    creator: str = ""
    """The principal that created it. Empty: it is not known."""

    @property
    def is_prepared(self) -> bool:
        """Whether the dataset was read to its end: only then has its manifest a hash."""
        return bool(self.manifest.sha256)


def is_active_attempt(run: RunRecord | None, attempt: int) -> bool:
    """Whether an attempt has not ended: the run exists, is active and has no newer attempt."""
    return run is not None and run.attempt == attempt and run.state in ACTIVE


@dataclass(frozen=True)
class NewSample:
    """A row of a dataset, valid or not."""

    index: int
    """Its position in the dataset, from 0."""
    line: int
    """Its line or row number, from 1."""
    sample_id: str
    tags: Mapping[str, str]
    request: bytes
    """The serialised request. Empty if the row is invalid; ``failure`` is then set."""
    failure: RunSample | None = None
    """The failed sample of an invalid row."""


class SampleRow(NamedTuple):
    """A row of a dataset, as the tables of the store have it. The first fields are those of ``run_rows``."""

    sample: int
    """Its index."""
    line: int
    sample_id: str
    tags: str
    """A JSON object."""
    request: bytes | None
    """Compressed. None: the row of the dataset is invalid."""
    failure: str | None
    """The reason for which it failed. None: it is pending."""
    outcome: bytes | None
    """The failed sample, serialised and compressed."""


@dataclass(frozen=True)
class SampleWork:
    """A sample to evaluate."""

    index: int
    line: int
    sample_id: str
    tags: Mapping[str, str]
    request: bytes
    crashes: int
    """How many gateways crashed with this sample in progress, in this attempt of the run."""
    waits: int = 0
    """How often in a row it was found waiting for batches of model calls."""


@dataclass(frozen=True)
class SampleOutcome:
    """A completed sample."""

    sample: RunSample
    """With its result or error."""
    results: Sequence[RunResult]
    """Its flat judgements, with or without texts. Empty if it failed."""
    usage: Usage
    """Its usage, failed attempts included as far as they are known."""
    degraded: bool = False
    """Whether its result lacks something for a transient reason."""


@dataclass(frozen=True)
class SeenJudge:
    """The identity of a judge that a sample of a run was sent to."""

    role: str
    judge: str
    name: str
    version: str
    time: datetime | None = None
    """When it was first seen. None: now."""


@dataclass(frozen=True)
class RegisteredJudge:
    """A judge that a tenant registered."""

    tenant: str
    judge: JudgeRegistration
    revision: int
    """Raised with each change."""


@dataclass(frozen=True)
class MonitoredJudge:
    """A judge that a tenant monitors for drift."""

    tenant: str
    role: str
    name: str
    monitor: JudgeMonitor
    identity: str
    """JSON: what the judge stated of itself at the last check, see ``gateway.judges.monitors``."""
    attempt: int = 0
    """The attempt of the run that the check in progress compares. 0: no check is in progress."""
    revision: int = 0
    """Raised with each change."""


@dataclass(frozen=True)
class Event:
    """An event of a run."""

    cursor: int
    """Ascending within the run, with gaps."""
    time: datetime
    kind: str
    """"state" or "progress"."""
