"""Evaluates one sample of a run, with retries of transient failures."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, cast

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import PanelVote
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment, GoldAnswer, ShadowAssessment
from dramaturg.api.evaluation.v1.shadows_pb2 import ShadowJudgement
from dramaturg.judge.provenance import total_usage
from dramaturg.service import context
from dramaturg.service.auth.caller import current
from dramaturg.service.errors import ServiceError
from gateway.evaluations.failures import TRANSIENT, Failure, never_asked
from gateway.evaluations.kinds import Evaluations, run_kind
from gateway.evaluations.scope import BatchWait, DeferredShadows, EvaluationScope, PendingCalls, SeenIdentity
from gateway.runs.engine import policy
from gateway.runs.records import Incident

logger = logging.getLogger(__name__)

_CODES = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
)
_ABSTAIN_REASON = verdict_pb2.AbstainReason.DESCRIPTOR.full_name
_NO_PART = tuple(
    one.DESCRIPTOR.full_name for one in (PanelVote, ShadowAssessment, ShadowJudgement, GoldAnswer)
)
"""Messages whose abstentions leave no gap in a result, or one that ``RunKind.preparation`` covers."""

Finds = Callable[[Any], Any]
"""Returns the message that abstained, or None."""
SlowDown = Callable[[float], Awaitable[None]]
"""Waits for the turn of the next attempt, with fewer samples in progress. Takes the time at which the last
attempt began, on the clock of ``time.monotonic``.
"""


def is_transient(error: ServiceError) -> bool:
    """Whether a failed sample may succeed when it is retried."""
    return error.code in _CODES and error.reason != error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED


class Gap(NamedTuple):
    """What a result lacks for a transient reason."""

    description: str
    """The abstention or the missing part. Empty: nothing is missing."""
    timed_out: bool
    """Whether a judge did not answer in time, by its failure or by the gap that a panel leaves."""


def transient_gap(
    result: Message, failures: Sequence[Failure], preparation: tuple[str, Any] | None = None
) -> Gap:
    """Finds an abstention or a missing part of a result that has a transient reason.

    Args:
        result: The result of an evaluation.
        failures: The judge calls that failed during the evaluation.
        preparation: See ``RunKind.preparation``.
    """
    found = _finder(result.DESCRIPTOR)(result)
    reasons = {failure.reason for failure in failures}
    if found is not None:
        reasons |= {getattr(found, field.name) for field in found.DESCRIPTOR.fields if _is_reason(field)}
    description = _description(found, failures, preparation)
    return Gap(description, verdict_pb2.ABSTAIN_REASON_TIMED_OUT in reasons)


def _description(found: Any, failures: Sequence[Failure], preparation: tuple[str, Any] | None) -> str:
    if found is not None and (said := getattr(found, "rationale", "")):
        return str(said)
    for failure in failures:
        if failure.reason in TRANSIENT:
            return f"{failure.judge} {failure.explanation}"
    if preparation is not None:
        absence, answer = preparation
        if never_asked(answer):
            return f"{absence}: {answer.failure}"
    return "" if found is None else _abstention(found)


def _abstention(message: Any) -> str:
    """Describes the abstention of a message that has no rationale."""
    reasons = (getattr(message, field.name) for field in message.DESCRIPTOR.fields if _is_reason(field))
    name = next(verdict_pb2.AbstainReason.Name(reason) for reason in reasons if reason in TRANSIENT)
    who = f"model {model!r}" if (model := getattr(message, "model", "")) else "a judge"
    return f"{who} abstained: {name.removeprefix('ABSTAIN_REASON_')}"


@cache
def _finder(descriptor: Descriptor) -> Finds:
    """Makes a search for transient abstentions in messages of a type, limited to fields that can hold one."""
    reasons = [field.name for field in descriptor.fields if _is_reason(field)]
    parts = [
        (field.name, field.is_repeated, _finder(message), _only_reason(message))
        for field, message in _parts(descriptor)
    ]

    is_assessment = descriptor.full_name == CandidateAssessment.DESCRIPTOR.full_name

    def find(message: Any) -> Any:
        if is_assessment and message.panel:
            return None  # the verdict of the panel counts
        for name in reasons:
            if getattr(message, name) in TRANSIENT:
                return message
        for name, repeated, look, reason in parts:
            if repeated and reason:
                # The verdicts of a candidate: there are many.
                for one in getattr(message, name):
                    if getattr(one, reason) in TRANSIENT:
                        return one
            elif repeated:
                for one in getattr(message, name):
                    if (found := look(one)) is not None:
                        return found
            elif message.HasField(name) and (found := look(getattr(message, name))) is not None:
                return found
        return None

    return find


def _only_reason(descriptor: Descriptor) -> str:
    """The name of the only field that holds a reason. Empty: there are several, or messages that do."""
    reasons = [field.name for field in descriptor.fields if _is_reason(field)]
    return reasons[0] if len(reasons) == 1 and not _parts(descriptor) else ""


def _parts(descriptor: Descriptor) -> list[tuple[FieldDescriptor, Descriptor]]:
    """The fields with messages that hold a reason, and the types of these."""
    return [
        (field, message)
        for field in descriptor.fields
        if (message := field.message_type) is not None and _holds_reasons(message)
    ]


@cache
def _holds_reasons(descriptor: Descriptor) -> bool:
    """Whether messages of a type hold an AbstainReason at any depth. No result type is recursive."""
    if descriptor.GetOptions().map_entry or descriptor.full_name in _NO_PART:
        return False
    return any(map(_is_reason, descriptor.fields)) or bool(_parts(descriptor))


def _is_reason(field: FieldDescriptor) -> bool:
    return field.enum_type is not None and field.enum_type.full_name == _ABSTAIN_REASON


FIRST_WAIT_SECONDS = 0.5
"""The upper bound of the first wait between attempts; doubled with each one. Waits have full jitter."""
MAX_WAIT_SECONDS = 8.0
"""The largest upper bound, unless a judge asks for more."""
MAX_RETRY_AFTER_SECONDS = 60.0
"""The longest wait that a judge can ask for."""

MAX_FREE_ATTEMPTS = 20
"""The most attempts at a sample that are free because its model is slow."""

REPORT_AFTER_SECONDS = 2.0
"""Failures that end sooner are not reported: single attempts fail in every long run."""
REPORT_INTERVAL_SECONDS = 2.0
"""The least time between two reports. Each is a transaction, of which a run without failures has none."""
SILENCE_SECONDS = 60.0
"""The time without a finished attempt after which the pending call is reported, and between such reports."""


@dataclass(frozen=True)
class SampleEvaluation:
    """The outcome of a sample: a result or an error."""

    result: Message | None
    error: ServiceError | None
    usage: Usage
    """The usage of all attempts, as far as it is known."""
    attempts: int
    timed_out: bool
    """Whether the last attempt, or a judge in it, did not end in time."""
    degraded: bool
    """Whether the last attempt failed, or its result lacks something for a transient reason."""
    identities: Collection[SeenIdentity] = ()
    """The identities of the judges that were called."""
    shadows: Sequence[DeferredShadows] = ()
    """The calls of shadows in progress, which add to the result (``DeferredShadows.finish``)."""
    batch: BatchWait | None = None
    """The wait for batches of model calls: while it is pending, there is no outcome. None: none is made."""


@dataclass(frozen=True)
class _Attempt:
    result: Message | None
    error: ServiceError | None
    usage: Usage
    failure: str
    """The error, or the gap in the result. Empty: none."""
    may_improve: bool
    timed_out: bool
    """Whether it, or a judge, did not end in time."""
    retry_after: float
    shadows: Sequence[DeferredShadows] = ()
    batch: BatchWait | None = None


class SampleEvaluator:
    """Evaluates samples, each one alone.

    Args:
        evaluations: Plans the evaluations.
        outage_timeout_seconds: How long an outage of judges is retried beyond the attempts of the policy.
    """

    def __init__(self, evaluations: Evaluations, outage_timeout_seconds: float) -> None:
        self._evaluations = evaluations
        self._outage = OutageTracker(outage_timeout_seconds)
        self.prompt_text = evaluations.registry.prompt_text

    async def evaluate(
        self,
        row: bytes,
        spec: RunSpec,
        repeat_offset: int,
        request_id: str,
        failures: FailureLog,
        interrupted: list[Usage],
        slow_down: SlowDown,
        batch_until: float | None = None,
    ) -> SampleEvaluation:
        """Evaluates a row, retrying transient errors and abstentions.

        After the attempts of the policy the last result is kept, abstentions included. During an outage of
        judges, up to its timeout, further attempts are free. So is one that ends by a timeout while samples
        of the run get further: its model is slow, and is not asked again for answers that the ledger has.

        Args:
            row: The serialised request.
            spec: The spec of the run.
            repeat_offset: Added to the repeat index.
            request_id: Names the sample in the logs of every service.
            failures: Records the outcome of each attempt.
            interrupted: Receives the usage of all answers if the evaluation is cancelled.
            slow_down: Called after an attempt of a slow model, before the next one.
            batch_until: Until when model calls may wait for batches, in seconds since 1970. None: they are
                made live.
        """
        scope = EvaluationScope(
            self._evaluations.context.timeouts,
            current().tenant,
            request_id,
            identities=set(),
            pending=failures.pending,
            batch=None if batch_until is None else BatchWait(batch_until),
        )
        try:
            return await self._evaluate(row, spec, repeat_offset, scope, failures, slow_down)
        except asyncio.CancelledError:
            interrupted += scope.usage
            raise

    async def _evaluate(
        self,
        row: bytes,
        spec: RunSpec,
        repeat_offset: int,
        scope: EvaluationScope,
        failures: FailureLog,
        slow_down: SlowDown,
    ) -> SampleEvaluation:
        attempts, free, most_answers, first_failure = 0, 0, 0, None
        usages: list[Usage] = []
        while True:
            attempts += 1
            begun = time.monotonic()
            is_last = attempts - free >= policy.sample_attempts(spec.policy)
            attempt = await self._attempt(row, spec, repeat_offset, scope, is_last=is_last)
            usages.append(attempt.usage)
            answers = attempt.usage.provider_call_count + attempt.usage.cache_hit_count
            if attempt.timed_out and attempts > 1 and answers > most_answers:
                failures.got_further()
            is_slow = attempt.timed_out and free < MAX_FREE_ATTEMPTS and failures.got_further_since(begun)
            most_answers = max(most_answers, answers)
            if not attempt.may_improve or (attempt.batch is not None and attempt.batch.is_pending):
                self._outage.end()
                break
            first_failure = time.monotonic() if first_failure is None else first_failure
            if is_slow:
                free += 1
                self._outage.end()
            else:
                self._outage.begin()
            used_up = attempts - free >= policy.sample_attempts(spec.policy)
            if used_up and not self._outage.allows_retry(first_failure):
                break
            for calls in attempt.shadows:
                calls.cancel()
            wait = _wait(attempts, attempt.retry_after)
            if not is_slow:
                failures.failed(attempt.failure, wait)
            await asyncio.sleep(wait)
            if is_slow:
                await slow_down(begun)
        if attempt.failure and not (attempt.batch is not None and attempt.batch.is_pending):
            failures.failed(attempt.failure)
        else:
            failures.succeeded()
        return SampleEvaluation(
            attempt.result,
            attempt.error,
            total_usage(usages),
            attempts,
            timed_out=attempt.timed_out,
            degraded=bool(attempt.failure),
            identities=frozenset(scope.identities or ()),
            shadows=attempt.shadows,
            batch=attempt.batch,
        )

    async def _attempt(
        self, row: bytes, spec: RunSpec, repeat_offset: int, sample: EvaluationScope, *, is_last: bool
    ) -> _Attempt:
        """Evaluates a row once, in a scope of its own, whose usage is added to that of the sample."""
        deadline = time.monotonic() + policy.sample_seconds(spec.policy)
        shadows: list[DeferredShadows] = []
        batch = sample.batch and BatchWait(sample.batch.until)
        scope = replace(
            sample, deadline=deadline, failures=[], usage=[], deferred=shadows, batch=batch, is_last=is_last
        )
        kind = run_kind(spec)
        try:
            with context.scope(scope.request_context()):
                request = kind.request_type.FromString(row)
                kind.apply_spec(request, spec, repeat_offset)
                shared = self._evaluations.context
                result = await kind.evaluate(request, spec, repeat_offset, shared, scope)
        except ServiceError as error:
            return _failed(error, total_usage(scope.usage), batch)
        except Exception:
            # A defect of the gateway fails this sample alone.
            fields = {"sample": scope.request_id}
            logger.exception("a sample could not be evaluated", extra={"fields": fields})
            return _failed(_internal(), total_usage(scope.usage), batch)
        except BaseException:  # such as a cancellation of the run
            for calls in shadows:
                calls.cancel()
            raise
        finally:
            sample.usage.extend(scope.usage)
        waits = [failure.retry_after or 0 for failure in scope.failures]
        usage = cast("Any", result).usage
        gap, late = transient_gap(result, scope.failures, kind.preparation(result))
        return _Attempt(result, None, usage, gap, bool(gap), late, max(waits, default=0), shadows, batch)


class OutageTracker:
    """Tells an outage of judges, which is waited for, from a judge that does not return.

    A restarting judge or generation service fails every sample for some seconds. Attempts spent on it would
    leave abstentions in the results that depend on its timing. A judge that stays away must not hold up each
    sample for as long, so the outage is measured once, for all samples of the process.

    Args:
        timeout_seconds: How long an outage is waited for.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._began: float | None = None

    def begin(self) -> None:
        """Records a transient failure of a sample."""
        if self._began is None:
            self._began = time.monotonic()

    def end(self) -> None:
        """Records a sample without a transient failure."""
        self._began = None

    def allows_retry(self, first_failure: float) -> bool:
        """Whether a sample is retried beyond its attempts.

        Args:
            first_failure: Its first failure, on the clock of ``time.monotonic``.
        """
        if self._began is None:
            return False
        return time.monotonic() - min(self._began, first_failure) < self._timeout


class FailureLog:
    """The failed attempts at samples of one run in this process, until one succeeds.

    Attributes:
        pending: The judge calls that the samples wait for.
    """

    def __init__(self) -> None:
        self.pending = PendingCalls()
        self._began: float | None = None
        self._reported_at = 0.0
        self._unreported = 0
        self._description = ""
        self._next_attempt: float | None = None
        self._last_end = time.monotonic()
        """When an attempt last ended."""
        self._got_further = -math.inf

    def got_further(self) -> None:
        """Records an attempt that timed out with more answers than each before it, and ends the incident."""
        self.succeeded()
        self._got_further = self._last_end

    def got_further_since(self, moment: float) -> bool:
        """Whether an attempt got further since a moment on the clock of ``time.monotonic``."""
        return self._got_further >= moment

    def failed(self, description: str, wait: float | None = None) -> None:
        """Records a failed attempt.

        Args:
            description: The failure.
            wait: Seconds until the sample is retried. None: it is not.
        """
        now = self._last_end = time.monotonic()
        if self._began is None:
            self._began = now
        self._unreported += 1
        self._description = description
        if self._next_attempt is not None and self._next_attempt <= now:
            self._next_attempt = None
        if wait is not None:
            due = now + wait
            self._next_attempt = due if self._next_attempt is None else min(self._next_attempt, due)

    def succeeded(self) -> None:
        """Records an attempt that succeeded, which ends the incident."""
        self._last_end = time.monotonic()
        self._began = None
        self._unreported = 0
        self._next_attempt = None

    def report(self) -> Incident | None:
        """The incident to report now; None if there is nothing new, or it is too early."""
        now = time.monotonic()
        if self._began is None or not self._unreported:
            return self._silence(now)
        if now - self._began < REPORT_AFTER_SECONDS or now - self._reported_at < REPORT_INTERVAL_SECONDS:
            return None
        wait = None if self._next_attempt is None else self._next_attempt - now
        incident = Incident(self._description, self._unreported, now - self._began, wait)
        self._reported_at, self._unreported = now, 0
        return incident

    def _silence(self, now: float) -> Incident | None:
        silent = now - max(self._last_end, self._reported_at) >= SILENCE_SECONDS
        if not silent or not (pending := self.pending.describe()):
            return None
        self._reported_at = now
        return Incident(pending, 0, now - self._last_end, None)


def _failed(error: ServiceError, usage: Usage, batch: BatchWait | None) -> _Attempt:
    failure = f"{error.code.name}: {error.message}"
    late, wait = error.code is grpc.StatusCode.DEADLINE_EXCEEDED, error.retry_after or 0
    return _Attempt(None, error, usage, failure, is_transient(error), late, wait, batch=batch)


def _wait(attempts: int, retry_after: float) -> float:
    bound = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(attempts - 1, 16))
    # Jitter: samples that failed together must not return together.
    return max(min(retry_after, MAX_RETRY_AFTER_SECONDS), random.uniform(0, bound))  # noqa: S311


def _internal() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_INTERNAL,
        "the sample could not be evaluated; the log of the gateway has the reason",
    )
