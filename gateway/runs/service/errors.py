"""The errors of runs that are not there, or are in another state."""

from __future__ import annotations

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunState
from dramaturg.service.errors import ServiceError
from gateway.runs.records import RunRecord


def not_found(run_id: str) -> ServiceError:
    """The error of a run that is not there, or is another tenant's: nobody is told which."""
    return ServiceError(
        grpc.StatusCode.NOT_FOUND,
        error_reason_pb2.ERROR_REASON_RESOURCE_NOT_FOUND,
        f"there is no run {run_id!r}",
        metadata={"name": run_id},
    )


def wrong_state(run: RunRecord, wanted: str) -> ServiceError:
    """The error of a call that the run's state does not allow.

    Args:
        run: The run.
        wanted: What it would have to be, such as "has ended".
    """
    state = RunState.Name(run.state).removeprefix("RUN_STATE_")
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_RUN_STATE,
        f"run {run.id!r} is {state}: the call is for a run that {wanted}",
        metadata={"run_id": run.id, "state": state},
    )
