"""Finds runs for RPCs, and the errors of runs that do not fit a call."""

from __future__ import annotations

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunState
from dramaturg.service.errors import ServiceError
from gateway.runs.records import RunRecord
from gateway.runs.service.messages import describe_one
from gateway.runs.store import RunStore
from gateway.runs.store_calls import ServiceCaller


class RunLookup:
    """Finds the runs of a tenant.

    Args:
        store: The run store.
        caller: Calls it.
    """

    def __init__(self, store: RunStore, caller: ServiceCaller) -> None:
        self._store = store
        self._caller = caller

    async def find(self, run_id: str, tenant: str) -> RunRecord:
        """Returns a run.

        Raises:
            ServiceError: NOT_FOUND: it does not exist, or belongs to another tenant.
        """
        run = await self._caller.call(self._store.runs.get, run_id, tenant)
        if run is None:
            raise not_found(run_id)
        return run

    async def get(self, run_id: str, tenant: str) -> Run:
        """Returns a run as a message; raises as ``find`` does."""
        return await self._caller.call(self._get, run_id, tenant)

    async def describe(self, run: RunRecord) -> Run:
        """Returns a run as a message."""
        return await self._caller.call(describe_one, run, self._store)

    def _get(self, run_id: str, tenant: str) -> Run:
        run = self._store.runs.get(run_id, tenant)
        if run is None:
            raise not_found(run_id)
        return describe_one(run, self._store)


def not_found(run_id: str) -> ServiceError:
    """The error of a run that does not exist or belongs to another tenant; callers cannot tell which."""
    return ServiceError(
        grpc.StatusCode.NOT_FOUND,
        error_reason_pb2.ERROR_REASON_RESOURCE_NOT_FOUND,
        f"run {run_id!r} does not exist",
        metadata={"name": run_id},
    )


def wrong_state(run: RunRecord, wanted: str) -> ServiceError:
    """The error of a call that the state of the run does not allow.

    Args:
        run: The run.
        wanted: The required condition, for example "has ended".
    """
    state = RunState.Name(run.state).removeprefix("RUN_STATE_")
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_RUN_STATE,
        f"run {run.id!r} is {state}: the call requires a run that {wanted}",
        metadata={"run_id": run.id, "state": state},
    )
