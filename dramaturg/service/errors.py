"""Errors in code and on the wire, as a ``google.rpc.Status`` and trailing metadata (AIP-193).

A servicer raises ``ServiceError``; the error interceptor turns it into a
``google.rpc.Status`` with the standard details (AIP-193). A client decodes the status into a
``ServiceError``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Self
from urllib.parse import quote

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.error_status_pb2 import ErrorStatus, StatusCode
from dramaturg.service.context import REQUEST_ID_METADATA

DOMAIN = "dramaturg.api"
"""The ``ErrorInfo.domain`` of every error of this API."""

_TOO_LARGE = re.compile(r"message.* larger than max \((\d+) vs\. (\d+)\)")
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_REASONS = frozenset(ErrorReason.values())

_NOTHING: Mapping[str, str] = MappingProxyType({})

# These reasons are about the request or the deployment as a whole, so it holds for the caller of the
# caller too.
_FORWARDED = frozenset(
    {
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_PROVIDER_RATE_LIMITED,
        error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
        error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
        error_reason_pb2.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED,
        error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
        error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING,
        error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_TOO_LARGE,
        error_reason_pb2.ERROR_REASON_BATCH_PENDING,
    }
)

# Transient codes of a dependency. Other codes mean a fault of the dependency or of the request to it.
_PASSING = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED}
)


class Fault(str):
    """The description of a broken limit, with its reason.

    Args:
        description: The description.
        reason: The reason, as in ``google.rpc.BadRequest.FieldViolation``.
    """

    __slots__ = ("reason",)

    reason: str

    def __new__(cls, description: str, reason: str) -> Self:
        """Makes a description with a reason."""
        made = super().__new__(cls, description)
        made.reason = reason
        return made


INVALID_VALUE = "INVALID_VALUE"
"""The reason of a violation that has none of its own."""


class Violation(NamedTuple):
    """One broken limit of a request."""

    field: str
    """The path of the field, for example ``candidates[3].script.steps[0].text`` or ``tags["level"]``."""
    description: str
    """The violation, with the limit and the actual value or length. A ``Fault`` has a reason of its own."""

    @property
    def reason(self) -> str:
        """The kind of the limit.

        REQUIRED, TOO_LONG, TOO_MANY, TOO_FEW, OUT_OF_RANGE, PATTERN_MISMATCH, UNKNOWN_VALUE, or INVALID_VALUE
        for any other.
        """
        return self.description.reason if isinstance(self.description, Fault) else INVALID_VALUE


class ServiceError(Exception):
    """A call failed for a reason of the contract.

    Attributes:
        code: The gRPC status code.
        reason: The value of ``dramaturg.api.common.v1.ErrorReason``; unspecified when the other side gave
            none.
        message: One sentence for a developer. It is sent to the caller: no secrets.
        metadata: The dynamic parts of the message by name (AIP-193).
        violations: The broken limits, where the request is at fault.
        retry_after: The retry delay in seconds; ``None``: unknown.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: ErrorReason.ValueType,
        message: str,
        *,
        metadata: Mapping[str, str] = _NOTHING,
        violations: Sequence[Violation] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata: Mapping[str, str] = dict(metadata)
        self.violations: Sequence[Violation] = tuple(violations)
        self.retry_after = retry_after

    @property
    def reason_name(self) -> str:
        """The reason's name, as in ``ErrorInfo.reason``."""
        return ErrorReason.Name(self.reason)

    def __repr__(self) -> str:
        return f"ServiceError({self.code.name}, {self.reason_name}, {self.message!r})"


def invalid(field: str, description: str) -> ServiceError:
    """The error of a request with one broken limit: INVALID_ARGUMENT, ERROR_REASON_FIELD_INVALID."""
    return invalid_fields([Violation(field, description)])


def invalid_fields(violations: Sequence[Violation]) -> ServiceError:
    """The error of a request with broken limits; the message names the first one and counts the others."""
    field, description = violations[0]
    others = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    return ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        error_reason_pb2.ERROR_REASON_FIELD_INVALID,
        f"{field} {description}{others}",
        metadata={"field": field},
        violations=violations,
    )


def too_large(message: str, **metadata: int) -> ServiceError:
    """The error of work above a limit, which no retry changes: RESOURCE_EXHAUSTED, ERROR_REASON_TOO_LARGE.

    Args:
        message: What exceeds the limit.
        metadata: The ``limit``, and the ``actual`` number, as far as they are known.
    """
    return _exhausted(error_reason_pb2.ERROR_REASON_TOO_LARGE, message, metadata)


def too_many_bytes(limit: int, actual: int | None) -> ServiceError:
    """The same of a request above the limit of a message, of whose size None is not known."""
    if actual is None:
        return too_large(f"the request has more than {limit} bytes", limit=limit)
    return too_large(
        f"the request has {actual} bytes; at most {limit} are allowed", limit=limit, actual=actual
    )


def overloaded(message: str, retry_after: float | None, **metadata: int) -> ServiceError:
    """The error of a call beside too many others: RESOURCE_EXHAUSTED, ERROR_REASON_OVERLOADED.

    Args:
        message: What is full.
        retry_after: The retry delay in seconds. None: a retry does not help.
        metadata: The ``limit``, and other numbers of the message.
    """
    return _exhausted(error_reason_pb2.ERROR_REASON_OVERLOADED, message, metadata, retry_after)


def _exhausted(
    reason: ErrorReason.ValueType, message: str, metadata: Mapping[str, int], retry_after: float | None = None
) -> ServiceError:
    numbers = {name: str(number) for name, number in metadata.items()}
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    return ServiceError(code, reason, message, metadata=numbers, retry_after=retry_after)


def from_rpc_error(error: grpc.aio.AioRpcError) -> ServiceError:
    """Reads a remote failure.

    A call that this side cancels ends with ``asyncio.CancelledError``, never with an ``AioRpcError``. A
    CANCELLED in an ``AioRpcError`` therefore means that the server dropped the call (C-core does so when its
    queue of waiting calls is full), and it is read as UNAVAILABLE.

    Returns:
        The error with the reason, metadata, violations and retry delay found in the status details. Without
        an ``ErrorInfo`` of this API the reason is ERROR_REASON_UNSPECIFIED, except of a message that gRPC
        itself refuses for its size: ERROR_REASON_TOO_LARGE, with the metadata "limit" and "actual".
    """
    code, message = error.code(), error.details() or ""
    if code is grpc.StatusCode.CANCELLED:
        code, message = grpc.StatusCode.UNAVAILABLE, f"the server dropped the call: {message}"
    reason = error_reason_pb2.ERROR_REASON_UNSPECIFIED
    metadata: dict[str, str] = {}
    violations: list[Violation] = []
    retry_after: float | None = None
    for detail in _details(error):
        info = error_details_pb2.ErrorInfo()
        bad_request = error_details_pb2.BadRequest()
        retry_info = error_details_pb2.RetryInfo()
        if _unpack(detail, info):
            if info.domain == DOMAIN and info.reason in ErrorReason.DESCRIPTOR.values_by_name:
                reason = ErrorReason.Value(info.reason)
            metadata = dict(info.metadata)
        elif _unpack(detail, bad_request):
            violations = [
                Violation(v.field, Fault(v.description, v.reason or INVALID_VALUE))
                for v in bad_request.field_violations
            ]
        elif _unpack(detail, retry_info):
            retry_after = _seconds(retry_info.retry_delay)
    too_large = _TOO_LARGE.search(message) if code is grpc.StatusCode.RESOURCE_EXHAUSTED else None
    if too_large is not None and not reason:
        # gRPC refuses it before any code of the server.
        reason = error_reason_pb2.ERROR_REASON_TOO_LARGE
        metadata = {"actual": too_large[1], "limit": too_large[2]}
    return ServiceError(
        code, reason, message, metadata=metadata, violations=violations, retry_after=retry_after
    )


def to_error_status(error: ServiceError) -> ErrorStatus:
    """Encodes the error of one item of a call that handles several. Violations are in the message only."""
    status = ErrorStatus(
        code=status_code(error.code), reason=error.reason, message=error.message, metadata=error.metadata
    )
    if error.retry_after is not None:
        status.retry_delay.FromNanoseconds(round(error.retry_after * 1e9))
    return status


def status_code(code: grpc.StatusCode) -> StatusCode.ValueType:
    """A gRPC status as a value of the contract."""
    return StatusCode.ValueType(code.value[0])


def from_error_status(status: ErrorStatus) -> ServiceError:
    """Decodes the error of one item. An unknown code is read as UNKNOWN, an unknown reason as unspecified."""
    return ServiceError(
        _CODES.get(status.code, grpc.StatusCode.UNKNOWN),
        status.reason if status.reason in _REASONS else error_reason_pb2.ERROR_REASON_UNSPECIFIED,
        status.message,
        metadata=status.metadata,
        retry_after=_seconds(status.retry_delay) if status.HasField("retry_delay") else None,
    )


def downstream(error: grpc.aio.AioRpcError | ServiceError, service: str) -> ServiceError:
    """The error of a server whose dependency failed.

    Failures are mapped, not forwarded: a request that a dependency refuses as invalid is a fault of this
    server, not of its caller. Reasons about models, providers, weights and budgets are forwarded unchanged.

    Args:
        error: The failure of the call to the dependency, or of one item of it (see [from_error_status]).
        service: The dependency, for example "generation".

    Returns:
        UNAVAILABLE where it is unreachable, dropped the call or is overloaded; DEADLINE_EXCEEDED where it ran
        out of time; else INTERNAL. The cause is in the metadata ``service``, ``code`` and ``reason``.
    """
    remote = error if isinstance(error, ServiceError) else from_rpc_error(error)
    if remote.reason in _FORWARDED:
        return ServiceError(
            remote.code,
            remote.reason,
            remote.message,
            metadata={**remote.metadata, "service": service},
            retry_after=remote.retry_after,
        )
    code = remote.code if isinstance(error, ServiceError) else error.code()
    metadata = {"service": service, "code": code.name, "reason": remote.reason_name}
    if remote.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return ServiceError(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
            f"{service} did not answer before the deadline",
            metadata=metadata,
        )
    passing = remote.code in _PASSING
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE if passing else grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
        f"{service} failed with {code.name}",
        metadata=metadata,
        retry_after=remote.retry_after if passing else None,
    )


def _details(error: grpc.aio.AioRpcError) -> Sequence[Any]:
    try:
        status = rpc_status.from_call(error)
    except ValueError:  # details that contradict the status line: a proxy rewrote it
        return ()
    except DecodeError:  # damaged details
        return ()
    return status.details if status is not None else ()


def _unpack(detail: Any, message: Message) -> bool:
    """Reads a detail into a message of its type; False for another type, and for damaged bytes."""
    try:
        return bool(detail.Unpack(message))
    except DecodeError:
        return False


def _seconds(delay: Duration) -> float:
    """A delay in seconds, at least 0. ``ToTimedelta`` fails for delays that no calendar holds."""
    return max(0.0, delay.seconds + delay.nanos / 1e9)


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
    for detail in _status_details(info, shown, error.retry_after, request_id):
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    trailing: list[tuple[str, str | bytes]] = [*rpc_status.to_status(status).trailing_metadata]
    if error.code is grpc.StatusCode.UNAVAILABLE:
        trailing.append((PUSHBACK_METADATA, str(_pushback_ms(error))))
    if request_id:
        trailing.append((REQUEST_ID_METADATA, request_id))
    return CallStatus(error.code, message, tuple(trailing))


def _status_details(
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
