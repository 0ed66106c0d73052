"""Counts the calls that are served, and makes their spans."""

from __future__ import annotations

import time

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import current
from dramaturg.service.interceptors.call import Call, Proceed
from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.calls import call_attributes, method_name
from dramaturg.service.telemetry.instruments import Counter, Gauge, Histogram

SERVED = Histogram(
    "grpc_server_call_duration_seconds",
    "How long calls took that were served, by how they ended.",
    ("grpc_method", "grpc_status"),
)
IN_FLIGHT = Gauge("dramaturg_server_calls_in_flight", "Calls that are being served.", ("grpc_method",))
SHED = Counter(
    "dramaturg_server_calls_shed_total", "Calls refused since the server had too many.", ("grpc_method",)
)

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
        span, token = tracing.start_server_span(call.metadata, method, call_attributes(method))
        IN_FLIGHT.add(method)
        try:
            await proceed(call)
        finally:
            IN_FLIGHT.add(method, amount=-1)
            SERVED.observe(time.perf_counter() - started, method, call.code)
            if call.reason == _OVERLOADED:
                SHED.add(method)
            if span.is_recording():
                request = current()
                span.set_attribute("dramaturg.request.id", request.request_id if request else "")
                tracing.set_code(span, call.code, failed=call.code in _SERVER_ERRORS)
            tracing.end_server_span(span, token)
