"""Evaluates one sample of a run, trying again what may pass."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsRequest, ScriptsResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.judge.usage import add_usage
from dramaturg.service import context
from dramaturg.service.context import RequestContext
from dramaturg.service.errors import ServiceError
from gateway.evaluations.calls import noted_failures
from gateway.evaluations.dispatch import Evaluations
from gateway.runs.engine import policy
from gateway.runs.engine.outages import Outage
from gateway.runs.engine.passing import error_may_pass, what_may_improve
from gateway.runs.engine.spec import complete, request_type
from gateway.runs.engine.troubles import TroubleLog
from gateway.runs.engine.writing import add_written, write_scripts

logger = logging.getLogger(__name__)

FIRST_WAIT_SECONDS = 0.5
"""The longest first wait between tries; it doubles with every try. Waits are drawn at random from 0."""
LONGEST_WAIT_SECONDS = 8.0
"""Up to this, unless a judge asks for more."""
LONGEST_ASKED_WAIT_SECONDS = 60.0
"""The most that a judge's wish is honoured."""


@dataclass(frozen=True)
class Sampled:
    """What came of a sample: a result or an error."""

    result: Message | None
    """The result of the evaluation."""
    error: ServiceError | None
    """Why there is none."""
    usage: Usage
    """What all tries cost that can be counted."""
    attempts: int
    """How often it was tried."""
    hindered: bool
    """Whether the last try failed, or something is missing in its result for a reason that may pass."""


@dataclass(frozen=True)
class _Try:
    result: Message | None
    error: ServiceError | None
    usage: Usage
    failure: str
    """What it failed of, or what is missing in its result, in words. Empty: nothing."""
    may_improve: bool
    retry_after: float


class Sampler:
    """Evaluates samples, each one alone.

    Args:
        evaluations: Plans the evaluations.
        outage_timeout_seconds: How long an outage of judges is retried beyond the policy.
    """

    def __init__(self, evaluations: Evaluations, outage_timeout_seconds: float) -> None:
        self._evaluations = evaluations
        self._outage = Outage(outage_timeout_seconds)

    async def evaluate(
        self, row: bytes, spec: RunSpec, repeat_offset: int, request_id: str, troubles: TroubleLog
    ) -> Sampled:
        """Evaluates a row; tries again where something failed or abstained that may pass.

        After the policy's number of tries the last result stands, abstentions included. While judges are
        down, for at most the outage's time, further tries do not count.

        Args:
            row: The serialised request.
            spec: What the run does.
            repeat_offset: Added to the repeat index.
            request_id: Names the sample in the logs of every service.
            troubles: Is told how every try went.
        """
        attempts, usage, first_failed = 0, Usage(), None
        while True:
            attempts += 1
            tried = await self._try(row, spec, repeat_offset, request_id)
            usage = add_usage(usage, tried.usage)
            if not tried.may_improve:
                self._outage.end()
                break
            first_failed = time.monotonic() if first_failed is None else first_failed
            self._outage.begin()
            if attempts >= policy.sample_attempts(spec.policy) and not self._outage.holds_up(first_failed):
                break
            wait = _wait(attempts, tried.retry_after)
            troubles.failed(tried.failure, wait)
            await asyncio.sleep(wait)
        if tried.failure:
            troubles.failed(tried.failure)
        else:
            troubles.succeeded()
        return Sampled(tried.result, tried.error, usage, attempts, hindered=bool(tried.failure))

    async def _try(self, row: bytes, spec: RunSpec, repeat_offset: int, request_id: str) -> _Try:
        deadline = time.monotonic() + policy.sample_seconds(spec.policy)
        with (
            context.scope(RequestContext(request_id, deadline=deadline)),
            noted_failures() as failures,
        ):
            try:
                result = await self._result(row, spec, repeat_offset)
            except ServiceError as error:
                return _failed(error)
            except Exception:
                # A fault of ours, or of a judge's answer that nobody thought of: it ends this sample alone.
                logger.exception("a sample could not be evaluated", extra={"fields": {"sample": request_id}})
                return _failed(_internal())
        waits = [failure.retry_after or 0 for failure in failures]
        usage = cast("Any", result).usage
        missing = what_may_improve(result, failures)
        return _Try(result, None, usage, missing, bool(missing), max(waits, default=0))

    async def _result(self, row: bytes, spec: RunSpec, repeat_offset: int) -> Message:
        request: Any = request_type(spec).FromString(row)
        complete(request, spec, repeat_offset)
        if not (isinstance(request, EvaluateScriptsRequest) and spec.models):
            return cast("Message", await self._evaluations.plan(request).result())
        known = self._evaluations
        written = await write_scripts(request, spec, repeat_offset, known.registry, known.timeouts)
        request.candidates.extend(one.candidate for one in written if one.judgeable)
        if request.candidates:
            result: ScriptsResult = await known.plan(request).result()
        else:
            result = ScriptsResult(task=request.task, tags=request.tags, mechanism=request.mechanism)
        add_written(result, written)
        return result


def _failed(error: ServiceError) -> _Try:
    failure = f"{error.code.name}: {error.message}"
    return _Try(None, error, Usage(), failure, error_may_pass(error), error.retry_after or 0)


def _wait(attempts: int, asked: float) -> float:
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(attempts - 1, 16))
    # Samples that failed together must not come back together.
    return max(min(asked, LONGEST_ASKED_WAIT_SECONDS), random.uniform(0, longest))  # noqa: S311


def _internal() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_INTERNAL,
        "the sample could not be evaluated; the gateway's log says why",
    )
