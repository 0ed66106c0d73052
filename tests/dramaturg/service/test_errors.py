from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.common.v1.error_status_pb2 import ErrorStatus, StatusCode
from dramaturg.service.errors import (
    PUSHBACK_METADATA,
    ServiceError,
    Violation,
    downstream,
    encode,
    from_error_status,
    from_rpc_error,
    invalid,
    invalid_fields,
    to_error_status,
)
from dramaturg.testing import serve
from tests.support.grpc_servers import relay, serve_synthesizer, silent, synthesize_request
from tests.support.grpc_servers import synthesizer as synthesizer_contract

Code = grpc.StatusCode


def travelled(error: ServiceError, request_id: str = "r") -> grpc.aio.AioRpcError:
    """The error as the client has it."""
    status = encode(error, request_id)
    trailing = grpc.aio.Metadata(*status.trailing_metadata)
    return grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), trailing, details=status.details)


def remote(code: grpc.StatusCode, reason: reasons.ErrorReason.ValueType = 0) -> grpc.aio.AioRpcError:  # type: ignore[assignment]
    return travelled(ServiceError(code, reason, "it failed", metadata={"model": "m"}, retry_after=2.0))


def unknown_to_us(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    """A failure without any details, as the transport or a foreign server makes it."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="said so")


@given(
    reason=st.sampled_from(reasons.ErrorReason.values()),
    message=st.text(max_size=40),
    metadata=st.dictionaries(st.text("abc_", min_size=1), st.text(max_size=20), max_size=3),
    violations=st.lists(st.builds(Violation, st.text(max_size=20), st.text(max_size=20)), max_size=4),
    retry_after=st.none() | st.floats(0, 1000).map(lambda value: round(value, 3)),
)
def test_an_error_survives_the_way(
    reason: reasons.ErrorReason.ValueType,
    message: str,
    metadata: dict[str, str],
    violations: list[Violation],
    retry_after: float | None,
) -> None:
    sent = ServiceError(
        Code.ABORTED, reason, message, metadata=metadata, violations=violations, retry_after=retry_after
    )
    found = from_rpc_error(travelled(sent))
    assert (found.code, found.reason, found.message) == (sent.code, sent.reason, sent.message)
    assert (found.metadata, found.violations) == (sent.metadata, sent.violations)
    assert found.retry_after == pytest.approx(retry_after)


def test_a_status_has_one_detail_of_each_kind() -> None:
    status = rpc_status.from_call(travelled(invalid("id", "is required"), request_id="r-1"))
    kinds = [detail.TypeName() for detail in status.details]
    assert kinds == ["google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.RequestInfo"]
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("ERROR_REASON_FIELD_INVALID", "dramaturg.api")


@given(st.integers(1, 3000), st.sampled_from(["a", "漢", "😀"]))
def test_a_status_always_fits_the_trailers(count: int, character: str) -> None:
    field = character * 300
    error = invalid_fields([Violation(f"{field}[{index}]", field) for index in range(count)])
    error.metadata = {"field": field * 10}
    status = encode(error, "r")
    size = sum(
        len(key) + len(value) * (1.4 if isinstance(value, bytes) else 1) + 32
        for key, value in status.trailing_metadata
    )
    assert size + 3 * len(status.details.encode()) < 8192
    found = from_rpc_error(travelled(error))
    assert len(found.violations) + int(found.metadata.get("omitted_violations", "0")) == count


async def test_ten_thousand_violations_reach_the_client_as_invalid_argument() -> None:
    request = synthesize_request()
    request.candidates[0].script.steps.extend(
        type(request.candidates[0].script.steps[0])(duration_minutes=-1) for _ in range(900)
    )
    async with serve_synthesizer(silent) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Synthesize(request)
    error = from_rpc_error(raised.value)
    assert error.code is Code.INVALID_ARGUMENT
    assert len(error.violations) + int(error.metadata["omitted_violations"]) == 900


def test_a_failure_without_details_has_no_reason() -> None:
    error = from_rpc_error(unknown_to_us(Code.NOT_FOUND))
    assert (error.code, error.reason, error.message) == (
        Code.NOT_FOUND,
        reasons.ERROR_REASON_UNSPECIFIED,
        "said so",
    )


def test_details_that_contradict_the_status_are_left_out() -> None:
    trailing = rpc_status.to_status(status_pb2.Status(code=5, message="other")).trailing_metadata
    error = grpc.aio.AioRpcError(
        Code.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details="x"
    )
    assert from_rpc_error(error).code is Code.INTERNAL


def test_the_reason_of_another_domain_is_not_taken_for_ours() -> None:
    status = status_pb2.Status(code=Code.ABORTED.value[0], message="m")
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason="ERROR_REASON_OVERLOADED", domain="example.com")
    )
    trailing = rpc_status.to_status(status).trailing_metadata
    error = grpc.aio.AioRpcError(Code.ABORTED, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details="m")
    assert from_rpc_error(error).reason == reasons.ERROR_REASON_UNSPECIFIED


def test_a_call_that_the_server_dropped_is_unavailable() -> None:
    assert from_rpc_error(unknown_to_us(Code.CANCELLED)).code is Code.UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.UNAVAILABLE, Code.UNAVAILABLE),
        (Code.CANCELLED, Code.UNAVAILABLE),
        (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE),
        (Code.DEADLINE_EXCEEDED, Code.DEADLINE_EXCEEDED),
        (Code.INVALID_ARGUMENT, Code.INTERNAL),
        (Code.NOT_FOUND, Code.INTERNAL),
        (Code.PERMISSION_DENIED, Code.INTERNAL),
        (Code.UNAUTHENTICATED, Code.INTERNAL),
        (Code.UNIMPLEMENTED, Code.INTERNAL),
        (Code.UNKNOWN, Code.INTERNAL),
    ],
)
def test_failures_of_dependencies_are_mapped(code: grpc.StatusCode, expected: grpc.StatusCode) -> None:
    error = downstream(unknown_to_us(code), "generation")
    assert error.code is expected
    assert error.metadata["service"] == "generation"
    assert error.metadata["code"] == code.name
    assert "said so" not in error.message


def test_an_invalid_request_of_ours_is_not_the_callers() -> None:
    error = downstream(travelled(invalid("messages", "is required")), "generation")
    assert (error.code, error.reason) == (Code.INTERNAL, reasons.ERROR_REASON_DEPENDENCY_FAILED)
    assert error.violations == ()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (Code.INVALID_ARGUMENT, reasons.ERROR_REASON_MODEL_UNKNOWN),
        (Code.UNAVAILABLE, reasons.ERROR_REASON_PROVIDER_UNAVAILABLE),
        (Code.RESOURCE_EXHAUSTED, reasons.ERROR_REASON_PROVIDER_RATE_LIMITED),
        (Code.NOT_FOUND, reasons.ERROR_REASON_COMPLETION_NOT_RECORDED),
        (Code.FAILED_PRECONDITION, reasons.ERROR_REASON_WEIGHTS_MISSING),
    ],
)
def test_what_holds_for_every_caller_is_forwarded(
    code: grpc.StatusCode, reason: reasons.ErrorReason.ValueType
) -> None:
    error = downstream(remote(code, reason), "generation")
    assert (error.code, error.reason, error.metadata["model"]) == (code, reason, "m")
    assert error.retry_after == 2.0


def test_only_the_servers_own_state_invites_the_transport_to_retry() -> None:
    def pushback(error: ServiceError) -> str | bytes | None:
        return dict(encode(error, "").trailing_metadata).get(PUSHBACK_METADATA)

    assert (
        pushback(
            ServiceError(Code.UNAVAILABLE, reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, "m", retry_after=1)
        )
        == "-1"
    )
    assert (
        pushback(ServiceError(Code.UNAVAILABLE, reasons.ERROR_REASON_SHUTTING_DOWN, "m", retry_after=0.25))
        == "250"
    )
    assert pushback(ServiceError(Code.INTERNAL, reasons.ERROR_REASON_INTERNAL, "m")) is None


async def test_a_failure_behind_two_hops_is_asked_for_once_at_each() -> None:
    """Retries belong to one owner: the transport must not multiply a failure that a handler answered."""
    calls = 0

    async def fail(request: SynthesizeRequest, context: object) -> SynthesizeResponse:
        nonlocal calls
        calls += 1
        raise ServiceError(
            Code.UNAVAILABLE, reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, "down", retry_after=0.01
        )

    async with (
        serve(synthesizer_contract(fail)) as second,
        serve_synthesizer(relay(second.target)) as stub,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Synthesize(synthesize_request())
    assert from_rpc_error(raised.value).reason == reasons.ERROR_REASON_PROVIDER_UNAVAILABLE
    assert calls == 1


def test_the_error_of_an_item_travels_like_that_of_a_call() -> None:
    error = ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        reasons.ERROR_REASON_PROVIDER_RATE_LIMITED,
        "slow down",
        metadata={"provider": "p"},
        retry_after=1.5,
    )
    read = from_error_status(to_error_status(error))
    assert vars(read) == vars(error)
    mapped = downstream(read, "generation")
    assert (mapped.code, mapped.reason, mapped.retry_after) == (error.code, error.reason, 1.5)
    assert mapped.metadata == {"provider": "p", "service": "generation"}


def test_the_invalid_item_of_a_dependency_is_a_fault_here() -> None:
    error = downstream(from_error_status(to_error_status(invalid("messages", "is required"))), "generation")
    assert error.code is grpc.StatusCode.INTERNAL
    assert error.metadata["code"] == "INVALID_ARGUMENT"


def test_unknown_codes_reasons_and_absurd_delays_are_read() -> None:
    status = ErrorStatus(code=StatusCode.ValueType(99), reason=reasons.ErrorReason.ValueType(999))
    status.retry_delay.seconds = 2**62
    error = from_error_status(status)
    assert (error.code, error.reason_name) == (Code.UNKNOWN, "ERROR_REASON_UNSPECIFIED")
    assert error.retry_after == 2.0**62
    status.retry_delay.seconds = -5
    assert from_error_status(status).retry_after == 0.0


def test_damaged_details_are_left_out() -> None:
    damaged = status_pb2.Status(code=13, message="a")
    damaged.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\x0a\xff")
    for details in (b"\xff\xff", damaged.SerializeToString()):
        trailing = grpc.aio.Metadata(("grpc-status-details-bin", details))
        error = grpc.aio.AioRpcError(Code.INTERNAL, grpc.aio.Metadata(), trailing, details="a")
        read = from_rpc_error(error)
        assert (read.code, read.message) == (Code.INTERNAL, "a")
        assert read.reason_name == "ERROR_REASON_UNSPECIFIED"
