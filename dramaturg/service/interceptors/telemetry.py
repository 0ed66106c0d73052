"""Counts the calls that are served, and makes their spans."""

from __future__ import annotations

import time

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import current
from dramaturg.service.interceptors.call import Call, Proceed
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
