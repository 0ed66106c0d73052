"""Makes a run of a request."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from importlib.metadata import version

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2 import CreateRunRequest
from dramaturg.service.errors import ServiceError
from gateway.runs.records import NewRun


def new_run(request: CreateRunRequest, tenant: str) -> NewRun:
    """The run that a valid request asks for. Its content is kept apart: the spec is listed often."""
    spec = RunSpec()
    spec.CopyFrom(request.spec)
    content = spec.dataset.content
    if spec.dataset.WhichOneof("source") == "content":
        spec.dataset.content = b""
    return NewRun(
        id=new_id(),
        tenant=tenant,
        spec=spec,
        content=content,
        request_id=request.request_id,
        version=version("dramaturg"),
    )


def new_id() -> str:
    """A name that people can tell apart and that sorts by age, such as "20260131-120000-9f3a1c2b54"."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(5)}"


def request_id_reused(request_id: str) -> ServiceError:
    """The error of a request id that made another run."""
    return ServiceError(
        grpc.StatusCode.ALREADY_EXISTS,
        error_reason_pb2.ERROR_REASON_REQUEST_ID_REUSED,
        f"the request id {request_id!r} was used for a run with another spec",
        metadata={"request_id": request_id},
    )
