"""The interceptors of a server, each for one concern of a call; those that bound a call are in ``limits``.

They run in this order, the outermost first:

1. ``RequestContexts`` gives the call its request id and deadline.
2. ``CallTelemetry`` counts it and makes its span.
3. ``AccessLog`` logs it, and writes the audit log.
4. ``ErrorMapping`` maps exceptions to statuses of the contract. Unmapped, gRPC sends the text of an
   unexpected exception to the caller, and loses the code of a failed dependency.
5. ``Authorization`` refuses callers that may not make it. (Credentials in the metadata are checked, and the
   gate of its contract starts the call, before the request is read.)
6. ``Admission`` refuses it above the limit of concurrent calls. gRPC's ``maximum_concurrent_rpcs`` also
   refuses health probes, so a busy pod is killed, and states neither a reason nor a retry delay.
7. ``Deadlines`` ends it at its deadline.
8. ``Gates`` passes it through the gate of its contract.
9. ``Validation`` refuses a request that breaks a limit.
10. ``LargeResponses`` bounds the large responses that a tenant has not received yet.

Interceptors of gRPC that are given to the server follow, in their order, and then the servicer. Health, and
reflection if it is open to all callers, pass none of them: a full server must answer probes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.service import logs
from dramaturg.service.auth import audit, caller
from dramaturg.service.auth.caller import current as current_caller
from dramaturg.service.auth.guard import Guard
from dramaturg.service.context import Context, RequestContext, current
from dramaturg.service.contract import Contract, Gate
from dramaturg.service.errors import CallStatus, ServiceError, downstream, encode, overloaded
from dramaturg.service.interceptors.chain import Call, DamagedMessage, InterceptorChain, Proceed, field_names
from dramaturg.service.interceptors.limits import Deadlines, LargeResponses, RequestContexts, Validation
from dramaturg.service.settings import ServerSettings
from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.instruments import IN_FLIGHT, SERVED, SHED, call_attributes, method_name

logger = logging.getLogger(__name__)


class ErrorMapping:
    """Ends a call whose handler raises with a status, and records the code of every call."""

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Maps exceptions to statuses; an explicit abort passes unchanged.

        Raises:
            grpc.aio.AbortError: The call was aborted.
        """
        try:
            await proceed(call)
        except grpc.aio.AbortError:
            call.code = _code(call.context)
            raise
        except Exception as raised:
            status = _end(call, raised)
        except BaseException as raised:
            cancelled = isinstance(raised, asyncio.CancelledError | GeneratorExit)
            code = grpc.StatusCode.CANCELLED if cancelled else grpc.StatusCode.UNKNOWN
            call.code = code.name
            raise
        else:
            return
        if call.unread is not None:
            await call.unread.drop(call.context)
        # Not where the error is handled: gRPC keeps the exception that ends a call in a cycle of references,
        # and the error, which it would refer to, refers to what the handler knows, such as the request.
        await call.context.abort_with_status(status)


def _end(call: Call, raised: Exception) -> CallStatus:
    """Records the error that ends a call; returns its status."""
    error = _mapped(raised, call.context)
    call.code, call.reason = error.code.name, error.reason_name
    if error.code is grpc.StatusCode.INTERNAL:
        logger.error("%s failed", call.method, exc_info=raised)
    request = current()
    return encode(error, request.request_id if request else "")


def _mapped(raised: Exception, context: Context) -> ServiceError:
    if isinstance(raised, ServiceError):
        return raised
    if isinstance(raised, grpc.aio.AioRpcError):
        return downstream(raised, "a dependency")
    # The generated base of a servicer sets the code before it raises; an unknown method raises the bare
    # class.
    if isinstance(raised, NotImplementedError) and (
        not raised.args or context.code() is grpc.StatusCode.UNIMPLEMENTED
    ):
        return ServiceError(
            grpc.StatusCode.UNIMPLEMENTED,
            error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
            "the server does not implement this method",
        )
    return ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "internal error")


def _code(context: Context) -> str:
    code: object = context.code()  # a number at run time, unlike the stub's type
    return next((known.name for known in grpc.StatusCode if code in {known, known.value[0]}), "UNKNOWN")


class Admission:
    """Counts the items of the calls in progress, and refuses the call that would exceed the limit.

    Args:
        limit: The maximum of concurrent items.
        retry_after: The retry delay of refused calls, in seconds.
        weigh: The number of items in the request of a call.
    """

    def __init__(self, limit: int, *, retry_after: float, weigh: Callable[[Call], int]) -> None:
        self._limit = limit
        self._retry_after = retry_after
        self._weigh = weigh
        self._in_progress = 0

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Counts the call's items while it is served.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_OVERLOADED) where they would exceed the limit.
        """
        items = self._weigh(call)
        if self._in_progress + items > self._limit:
            raise self._overloaded(items)
        self._in_progress += items
        try:
            await proceed(call)
        finally:
            self._in_progress -= items

    def _overloaded(self, items: int) -> ServiceError:
        if items == 1:
            message = f"the server has as many calls as it takes ({self._limit})"
            return overloaded(message, self._retry_after, limit=self._limit)
        message = f"the request has {items} items, and the server has room for {self._limit} at once"
        # A request that exceeds the limit alone is never admitted.
        retry_after = self._retry_after if items <= self._limit else None
        return overloaded(message, retry_after, limit=self._limit, items=items)


class Authorization:
    """Enters the caller, or refuses the call.

    Args:
        guard: Authenticates and authorizes callers.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Enters the caller.

        Raises:
            ServiceError: UNAUTHENTICATED, PERMISSION_DENIED or UNIMPLEMENTED.
        """
        self._guard.authorize(call.method, call.context, call.metadata)
        await proceed(call)


class Gates:
    """Passes each call through the gate of its contract (see ``dramaturg.service.contract``).

    Args:
        gates: The gates of the contracts that have one, by their full names.
        weigh: The number of items in the request of a call.
        guard: Authenticates callers.
    """

    def __init__(self, gates: Mapping[str, Gate], weigh: Callable[[Call], int], guard: Guard) -> None:
        self._weigh = weigh
        self._gates = gates
        self._guard = guard

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Passes the gate.

        Raises:
            ServiceError: The gate refuses the call.
        """
        gate = self._gates.get(call.method[1:].partition("/")[0])
        if gate is None:
            await proceed(call)
            return
        if self._guard.tenant_of_token() is None:
            await gate.start(call.method, current_caller().tenant)
        async with gate.passing(call.method, self._weigh(call), call.context) as answered:
            if answered is not None:
                call.observers.append(answered)
            await proceed(call)


_OVERLOADED = error_reason_pb2.ErrorReason.Name(error_reason_pb2.ERROR_REASON_OVERLOADED)
# The others are faults of the caller, and no errors of the server (semantic conventions for gRPC).
_SERVER_ERRORS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)


class CallTelemetry:
    """Observes each call."""

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Makes the span of the call, current while it is served."""
        started = time.perf_counter()
        method = method_name(call.method)
        request = current()
        attributes = {
            **call_attributes(method),
            "dramaturg.request.id": request.request_id if request else "",
        }
        span, token = tracing.start_server_span(call.metadata, method, attributes)
        IN_FLIGHT.add(method)
        try:
            await proceed(call)
        finally:
            IN_FLIGHT.add(method, amount=-1)
            SERVED.observe(time.perf_counter() - started, method, call.code)
            if call.reason == _OVERLOADED:
                SHED.add(method)
            if span.is_recording():
                tracing.set_code(span, call.code, failed=call.code in _SERVER_ERRORS)
            tracing.end_server_span(span, token)


access_logger = logging.getLogger("dramaturg.access")

logs.RateLimit(
    access_logger,
    lambda record: getattr(record, "fields", {}).get("code") == grpc.StatusCode.UNAUTHENTICATED.name,
)

_SEVERE = frozenset({grpc.StatusCode.INTERNAL.name, grpc.StatusCode.UNKNOWN.name})
_NO_REQUEST = RequestContext("")


class AccessLog:
    """Logs each call at INFO, a fault of the service at ERROR, and writes the audit log."""

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Logs the call once it has ended."""
        started = time.perf_counter()
        run_ids: list[str] = []
        bought = _Bought()
        call.observers.append(partial(_note, run_ids, bought))
        if audit.is_enabled() and "run_id" in field_names(call.request):
            run_ids.append(call.request.run_id)
        try:
            await proceed(call)
        finally:
            request = current() or _NO_REQUEST
            fields: dict[str, object] = {
                "method": call.method,
                "code": call.code,
                "reason": call.reason,
                "seconds": round(time.perf_counter() - started, 6),
                "request_id": request.request_id,
                "peer": request.peer,
            }
            if tenant := caller.current().tenant:
                fields["tenant"] = tenant
            fields |= bought.fields()
            audit.write(fields, run_ids[0] if run_ids else "", _judge_of(call))
            logs.write(access_logger, logging.ERROR if call.code in _SEVERE else logging.INFO, "call", fields)


def _judge_of(call: Call) -> str:
    """The judge that a call changes, as "role=name"; empty for other calls."""
    if not audit.is_kept(call.method) or "judge" not in field_names(call.request):
        return ""
    judge = call.request.judge
    if isinstance(judge, str):
        return f"{getattr(call.request, 'role', '')}={judge}"
    return f"{getattr(judge, 'role', '')}={getattr(judge, 'name', '')}"


@dataclass(slots=True)
class _Bought:
    """What a call bought so far. The messages are not kept: a stream may have many and large ones."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    """Of the calls with a known price. None: none has one."""

    def add(self, usage: Usage) -> None:
        """Adds the usage of a result or a completion."""
        self.calls += usage.provider_call_count
        self.tokens += usage.prompt_token_count + usage.completion_token_count
        if usage.HasField("cost_usd"):
            self.cost_usd = (self.cost_usd or 0.0) + usage.cost_usd

    def fields(self) -> Mapping[str, int | float]:
        """The fields of the log; none if nothing was bought."""
        if not self.calls:
            return {}
        cost = {} if self.cost_usd is None else {"cost_usd": self.cost_usd}
        return {"provider_calls": self.calls, "tokens": self.tokens, **cost}


def _note(run_ids: list[str], bought: _Bought, response: Any) -> None:
    """Takes the id of the run that the call has created, and the usage of a result or completion."""
    descriptor: Descriptor | None = getattr(response, "DESCRIPTOR", None)
    if descriptor is None:
        return
    has_run, buyers = _noted(descriptor)
    if has_run and not run_ids:
        run_ids.append(str(getattr(response.run, "id", "")))
    for name in buyers:
        bought.add(getattr(response, name).usage)


@cache
def _noted(descriptor: Descriptor) -> tuple[bool, Sequence[str]]:
    """Whether responses of a type have a run, and the names of their fields that state a usage."""
    fields = descriptor.fields_by_name
    buyers = [fields[name] for name in ("result", "completion") if name in fields]
    stating = [
        field.name
        for field in buyers
        if field.message_type is not None
        and not field.is_repeated
        and "usage" in field.message_type.fields_by_name
    ]
    return "run" in fields, stating


def server_interceptor(
    settings: ServerSettings,
    guard: Guard,
    contracts: Sequence[Contract],
    further: Sequence[grpc.aio.ServerInterceptor] = (),
) -> InterceptorChain:
    """The chain of a server.

    Args:
        settings: The limits.
        guard: Authenticates and authorizes callers.
        contracts: The contracts of the server.
        further: Interceptors of gRPC that run inside those of the server.
    """
    weights = {
        f"/{contract.full_name}/{method}": weight
        for contract in contracts
        for method, weight in contract.weights.items()
    }

    def weigh(call: Call) -> int:
        weight = weights.get(call.method)
        if weight is None or isinstance(call.request, DamagedMessage):
            return 1
        return max(1, weight(call.request))

    def named(select: Callable[[Contract], frozenset[str]]) -> frozenset[str]:
        return frozenset(
            f"/{contract.full_name}/{method}" for contract in contracts for method in select(contract)
        )

    retry_after = settings.overload_retry_seconds
    gates = {contract.full_name: contract.gate for contract in contracts if contract.gate is not None}
    unlimited = named(lambda contract: contract.unlimited)
    large = named(lambda contract: contract.large)
    return InterceptorChain(
        guard,
        (
            RequestContexts(
                default_deadline=settings.default_deadline_seconds,
                maximum_deadline=settings.maximum_deadline_seconds,
                unlimited=unlimited,
                batches=not gates,
            ),
            CallTelemetry(),
            AccessLog(),
            ErrorMapping(),
            Authorization(guard),
            Admission(settings.max_concurrent_calls, retry_after=retry_after, weigh=weigh),
            Deadlines(floor=settings.minimum_deadline_seconds),
            # Each is a step of every call: a server that has no gate or no large response goes without.
            *([Gates(gates, weigh, guard)] if gates else ()),
            Validation(settings.max_message_bytes),
            *([LargeResponses(large)] if large else ()),
        ),
        settings.max_message_bytes,
        further,
        unlimited,
        gates,
    )
