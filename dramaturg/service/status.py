"""Writes an error as a ``google.rpc.Status`` and trailing metadata (AIP-193)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import REQUEST_ID_METADATA
from dramaturg.service.errors import DOMAIN, ServiceError, Violation

PUSHBACK_METADATA = "grpc-retry-pushback-ms"
"""The metadata by which a server steers the retry policy of a client (gRFC A6): the milliseconds to wait, or,
below 0, no retry."""

# A client takes 8 KiB of metadata by default, and a larger status reaches it as another error altogether. The
# message goes out twice, in both cases in a form that grows: percent-encoded, and in base64.
_MESSAGE_BYTES = 1000
_METADATA_VALUE_BYTES = 300
_VIOLATIONS_BYTES = 2000

# Another replica, or the same one a moment later, succeeds. Any other failure was already retried by the
# owner of the retries, and a retry of the transport on top of it would multiply the calls at every hop.
_TRANSIENT_HERE = frozenset(
    {error_reason_pb2.ERROR_REASON_OVERLOADED, error_reason_pb2.ERROR_REASON_SHUTTING_DOWN}
)


@dataclass(frozen=True)
class CallStatus(grpc.Status):
    """The argument of ``abort_with_status``."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]


def encode(error: ServiceError, request_id: str) -> CallStatus:
    """The status of a failed call: one ErrorInfo; BadRequest, RetryInfo and RequestInfo where they apply.

    Content too long for the trailers is cut; the ErrorInfo counts the omitted violations
    (``omitted_violations``).
    """
    message = _clipped(error.message, _MESSAGE_BYTES)
    shown = _fitting(error.violations)
    info = error_details_pb2.ErrorInfo(reason=error.reason_name, domain=DOMAIN)
    for key, value in error.metadata.items():
        info.metadata[key] = _clipped(value, _METADATA_VALUE_BYTES)
    if omitted := len(error.violations) - len(shown):
        info.metadata["omitted_violations"] = str(omitted)
    status = status_pb2.Status(code=error.code.value[0], message=message)
    for detail in _details(info, shown, error.retry_after, request_id):
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    trailing: list[tuple[str, str | bytes]] = [*rpc_status.to_status(status).trailing_metadata]
    if error.code is grpc.StatusCode.UNAVAILABLE:
        trailing.append((PUSHBACK_METADATA, str(_pushback_ms(error))))
    if request_id:
        trailing.append((REQUEST_ID_METADATA, request_id))
    return CallStatus(error.code, message, tuple(trailing))


def _details(
    info: error_details_pb2.ErrorInfo,
    violations: Sequence[Violation],
    retry_after: float | None,
    request_id: str,
) -> Iterator[Message]:
    yield info
    if violations:
        yield error_details_pb2.BadRequest(
            field_violations=[
                error_details_pb2.BadRequest.FieldViolation(
                    field=violation.field, description=violation.description, reason=violation.reason
                )
                for violation in violations
            ]
        )
    if retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(round(retry_after * 1e9))
        yield error_details_pb2.RetryInfo(retry_delay=delay)
    if request_id:
        yield error_details_pb2.RequestInfo(request_id=request_id)


def _pushback_ms(error: ServiceError) -> int:
    if error.reason not in _TRANSIENT_HERE:
        return -1
    return round((error.retry_after or 0.0) * 1000)


def _fitting(violations: Sequence[Violation]) -> Sequence[Violation]:
    room = _VIOLATIONS_BYTES
    for count, (field, description) in enumerate(violations):
        room -= len(field.encode()) + len(description.encode()) + 28
        if room < 0:
            return violations[: max(count, 1)]
    return violations


def _clipped(text: str, most_bytes: int) -> str:
    """The text, truncated to a number of bytes after percent-encoding for a header."""
    if len(quote(text)) <= most_bytes:
        return text
    room, end = most_bytes - len(quote("…")), 0
    for character in text:
        room -= len(quote(character))
        if room < 0:
            break
        end += 1
    return f"{text[:end]}…"
