"""What an evaluation has on its way, from the request or the sample of a run to each call of a judge."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_BATCH_PENDING, ErrorReason
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_BATCH_PENDING, AbstainReason
from dramaturg.service import context
from dramaturg.service.auth.caller import current
from dramaturg.service.context import RequestContext
from dramaturg.service.errors import ServiceError
from gateway.evaluations.failures import TRANSIENT, Failure, never_asked
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Registry
from gateway.processes.pool import ProcessPool
from gateway.settings import VersionPolicy

_PENDING = {
    AbstainReason.DESCRIPTOR.full_name: ABSTAIN_REASON_BATCH_PENDING,
    ErrorReason.DESCRIPTOR.full_name: ERROR_REASON_BATCH_PENDING,
}


@dataclass
class BatchWait:
    """The wait of one evaluation.

    Attributes:
        until: Until when its model calls may wait, in seconds since 1970.
        is_pending: Whether one of them waits, so that the evaluation has no result yet.
    """

    until: float
    is_pending: bool = False

    def note(self, answer: Any) -> None:
        """Notes an answer of a judge."""
        self.is_pending = self.is_pending or (isinstance(answer, Message) and waits_for_batch(answer))

    def raise_if_pending(self) -> None:
        """Ends an evaluation whose next calls depend on one that waits.

        Raises:
            ServiceError: ABORTED, ERROR_REASON_BATCH_PENDING.
        """
        if self.is_pending:
            raise ServiceError(
                grpc.StatusCode.ABORTED, ERROR_REASON_BATCH_PENDING, "model calls wait for batches"
            )


def waits_for_batch(message: Message) -> bool:
    """Whether a message abstains or has an error, at any depth, because a model call waits for a batch."""
    return any(
        _waits(field, value if field.is_repeated else (value,)) for field, value in message.ListFields()
    )


def _waits(field: FieldDescriptor, values: Iterable[Any]) -> bool:
    if field.enum_type is not None:
        return _PENDING.get(field.enum_type.full_name, -1) in values
    if field.message_type is None or field.message_type.GetOptions().map_entry:
        return False
    return any(waits_for_batch(one) for one in values)


@dataclass(frozen=True)
class Timeouts:
    """The timeouts of judges, in seconds."""

    judge: float
    """The timeout from the call to the first answer, and from each answer to the next."""
    gold_answer: float
    """The timeout of the gold answer; at most half of the time left."""
    reserve: float
    """The time reserved for sending the result; at most a tenth of the time left."""


@dataclass(frozen=True)
class EvaluationContext:
    """The judges of a gateway, which all evaluations share."""

    registry: Registry
    directory: JudgeDirectory
    timeouts: Timeouts
    parsers: ProcessPool
    """The processes that parse long candidates."""


class SeenIdentity(NamedTuple):
    """The identity of a judge as it was before a call."""

    role: str
    judge: str
    name: str
    version: str
    expected: str
    """The expected version. Empty: any."""
    deviation: str
    """How the version deviates from the expected one. Empty: it does not."""
    reaction: VersionPolicy


class PendingCalls:
    """The unanswered calls to judges, for reports of waits."""

    def __init__(self) -> None:
        self._begun: dict[str, dict[object, float]] = {}
        """The start of each call by judge, earliest first."""

    @contextmanager
    def call(self, judge: str) -> Iterator[None]:
        """Records a call to a judge within a ``with`` block."""
        call = object()
        self._begun.setdefault(judge, {})[call] = time.monotonic()
        try:
            yield
        finally:
            del self._begun[judge][call]
            if not self._begun[judge]:
                del self._begun[judge]

    def describe(self) -> str:
        """The judge with the longest running call, as text; empty without calls."""
        if not self._begun:
            return ""
        judge, calls = min(self._begun.items(), key=lambda entry: next(iter(entry[1].values())))
        return f"{judge} has not answered {len(calls)} call{'' if len(calls) == 1 else 's'}"


class DeferredShadows(Protocol):
    """The calls of the shadows of an evaluation that has its result (``shadows.ShadowCalls``)."""

    usage: Usage
    """The usage that counts as that of the evaluation, after ``finish``."""

    async def finish(self) -> None:
        """Waits for the shadows, or for ``abandon``, and adds their judgements to the result."""

    def abandon(self) -> None:
        """Ends the wait of ``finish``."""

    def cancel(self) -> None:
        """Cancels the calls."""


@dataclass(frozen=True)
class EvaluationScope:
    """What the calls of one evaluation share. It is made where the evaluation begins, and passed on.

    A result states the reasons of failures as text; ``failures`` tell whether a retry may help. An evaluation
    that fails or is cancelled has no result; what its answers cost is known from ``usage`` alone.
    """

    timeouts: Timeouts
    """The timeouts of judges."""
    tenant: str = ""
    """The tenant for which judges are called. Empty: none."""
    request_id: str = ""
    """Names the evaluation in the logs of every service."""
    deadline: float | None = None
    """When the evaluation must have ended, on the clock of ``time.monotonic``. None: never."""
    failures: list[Failure] = field(default_factory=list)
    """Receives the failures of judges."""
    usage: list[Usage] = field(default_factory=list)
    """Receives the usage of the answers of judges, which counts against a quota or the budget of a run."""
    identities: set[SeenIdentity] | None = None
    """Receives the identities of the judges that are called; those that are not cached are fetched before.
    None: they are not needed."""
    pending: PendingCalls = field(default_factory=PendingCalls)
    """The calls in progress."""
    is_last: bool = True
    """Whether the result stands. False: a run evaluates anew what lacks something for a transient reason."""
    batch: BatchWait | None = None
    """The wait for batches of model calls. None: they are made live."""
    deferred: list[DeferredShadows] | None = None
    """Receives the calls of shadows that are in progress when the evaluation returns its result. The caller
    calls their ``finish``, which adds their judgements to the result. None: the result waits for them.
    """

    @classmethod
    def of_call(cls, timeouts: Timeouts, usage: list[Usage]) -> EvaluationScope:
        """The scope of the call that is being served.

        Args:
            timeouts: The timeouts of judges.
            usage: Receives the usage of the answers.
        """
        served, tenant = context.current(), current().tenant
        if served is None:
            return cls(timeouts, tenant, usage=usage)
        return cls(timeouts, tenant, served.request_id, served.deadline, usage=usage)

    def is_repeated_for(self, failure: str, answer: Any) -> bool:
        """Whether a run evaluates anew because judges lack something that another call prepares.

        Args:
            failure: Why it is missing. Empty: it is there.
            answer: The answer of the call that prepares it, with its provenance.
        """
        if self.is_last or not failure:
            return False
        return never_asked(answer) or any(one.reason in TRANSIENT for one in self.failures)

    def of_shadow(self, number: int, seconds: float) -> EvaluationScope:
        """The scope of a call of a shadow. This one has no part in its failures, usage and identities.

        Model calls of a shadow wait for batches as those of the evaluation do.

        Args:
            number: Tells apart the calls of the shadows of this evaluation.
            seconds: Its timeout.
        """
        # An id of its own: the attempts of model calls are limited by request id.
        request_id = f"{self.request_id}/shadow-{number}"
        deadline = time.monotonic() + seconds
        return EvaluationScope(self.timeouts, self.tenant, request_id, deadline, batch=self.batch)

    def request_context(self) -> RequestContext:
        """The context in which its calls are made."""
        until = None if self.batch is None else self.batch.until
        return RequestContext(self.request_id, deadline=self.deadline, batch_until=until)

    def left(self) -> float | None:
        """The seconds left for calls; None without a deadline."""
        if self.deadline is None:
            return None
        remaining = max(0.0, self.deadline - time.monotonic())
        return remaining - min(self.timeouts.reserve, remaining / 10)

    def for_gold_answer(self) -> float:
        """The timeout of the gold answer: at most half of the time left, for judges to use the other half."""
        left = self.left()
        return self.timeouts.gold_answer if left is None else min(self.timeouts.gold_answer, left / 2)
