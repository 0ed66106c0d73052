"""Counts the calls that are served, makes their spans, and logs them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.service import logs
from dramaturg.service.auth import audit, caller
from dramaturg.service.context import RequestContext, current
from dramaturg.service.interceptors.call import Call, Proceed, field_names
from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.calls import IN_FLIGHT, SERVED, SHED, call_attributes, method_name

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


logger = logging.getLogger("dramaturg.access")

logs.RateLimit(
    logger, lambda record: getattr(record, "fields", {}).get("code") == grpc.StatusCode.UNAUTHENTICATED.name
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
        call.send = partial(_send, call.send, run_ids, bought)
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
            logs.write(logger, logging.ERROR if call.code in _SEVERE else logging.INFO, "call", fields)


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


async def _send(send: Any, run_ids: list[str], bought: _Bought, response: Any) -> None:
    """Takes the id of the run that the call has created, and the usage of a result or completion."""
    names = field_names(response)
    if not run_ids and "run" in names:
        run_ids.append(str(getattr(response.run, "id", "")))
    for name in ("result", "completion"):
        if name in names and "usage" in field_names(one := getattr(response, name)):
            bought.add(one.usage)
    await send(response)
