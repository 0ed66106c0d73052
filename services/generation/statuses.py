"""The domain's errors as those of the contract."""

from __future__ import annotations

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError
from services.generation.errors import (
    BatchPendingError,
    DeadlinePassedError,
    FailureKind,
    ModelUnknownError,
    NotRecordedError,
    ProviderError,
)
from services.generation.ledger import LedgerUnavailableError

DOMAIN_ERRORS = (
    ModelUnknownError,
    NotRecordedError,
    DeadlinePassedError,
    LedgerUnavailableError,
    ProviderError,
    BatchPendingError,
)
"""The errors that [service_error] maps."""

_FAULTS = {
    FailureKind.RATE_LIMITED: (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_PROVIDER_RATE_LIMITED,
    ),
    FailureKind.TRANSIENT: (grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE),
    FailureKind.REJECTED: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED,
    ),
    FailureKind.MODEL_UNKNOWN: (
        grpc.StatusCode.INVALID_ARGUMENT,
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
    ),
    FailureKind.OTHER_API: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
    ),
    FailureKind.UNAUTHENTICATED: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
    ),
    FailureKind.CREDIT_EXHAUSTED: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
    ),
    FailureKind.ADDRESS_INVALID: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
    ),
    FailureKind.CONTEXT_LENGTH: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED,
    ),
}


def reason_of(kind: FailureKind) -> error_reason_pb2.ErrorReason.ValueType:
    """The reason that the contract has for a failure."""
    return _FAULTS[kind][1]


def service_error(error: Exception) -> ServiceError:
    """One of the domain's errors as that of the contract."""
    match error:
        case ModelUnknownError():
            return ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
                str(error),
                metadata={"model": error.model},
            )
        case NotRecordedError():
            return ServiceError(
                grpc.StatusCode.NOT_FOUND,
                error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
                str(error),
                metadata={"provider": error.provider, "fingerprint": error.fingerprint},
            )
        case DeadlinePassedError():
            return ServiceError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
                str(error),
            )
        case LedgerUnavailableError():
            return ServiceError(
                grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_STORE_UNAVAILABLE, str(error)
            )
        case BatchPendingError():
            return ServiceError(
                grpc.StatusCode.ABORTED,
                error_reason_pb2.ERROR_REASON_BATCH_PENDING,
                f"provider {error.provider!r}: {error}",
                metadata={"provider": error.provider},
                retry_after=error.retry_after,
            )
        case ProviderError():
            return _provider_error(error)
    raise TypeError(f"not an error of the domain: {error!r}")


def _provider_error(fault: ProviderError) -> ServiceError:
    code, reason = _FAULTS[fault.kind]
    metadata = {"provider": fault.provider}
    if fault.status:
        metadata["status"] = str(fault.status)
    return ServiceError(
        code,
        reason,
        f"provider {fault.provider!r}: {fault}",
        metadata=metadata,
        retry_after=fault.retry_after,
    )
