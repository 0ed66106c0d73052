"""Refuses calls by the caller's permissions, by the gate of the contract, and above the limit of calls.

gRPC's ``maximum_concurrent_rpcs`` also refuses health probes, so a busy pod is killed, and states neither a
reason nor a retry delay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.auth.caller import current
from dramaturg.service.auth.guard import Guard
from dramaturg.service.contract import Gate
from dramaturg.service.errors import ServiceError
from dramaturg.service.interceptors.call import Call, Proceed


class Admission:
    """Counts the items of the calls in progress, and refuses the call that would exceed the limit.

    Args:
        limit: The maximum of concurrent items.
        retry_after: The retry delay of refused calls, in seconds.
        weigh: The number of items in the request of a call.
    """

    def __init__(self, limit: int, *, retry_after: float, weigh: Callable[[Call], int]) -> None:
        self._limit = limit
        self._retry_after = retry_after
        self._weigh = weigh
        self._in_progress = 0

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Counts the call's items while it is served.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_OVERLOADED) where they would exceed the limit.
        """
        items = self._weigh(call)
        if self._in_progress + items > self._limit:
            raise self._overloaded(items)
        self._in_progress += items
        try:
            await proceed(call)
        finally:
            self._in_progress -= items

    def _overloaded(self, items: int) -> ServiceError:
        metadata = {"limit": str(self._limit)}
        message = f"the server has as many calls as it takes ({self._limit})"
        if items > 1:
            metadata["items"] = str(items)
            message = f"the request has {items} items, and the server has room for {self._limit} at once"
        return ServiceError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            error_reason_pb2.ERROR_REASON_OVERLOADED,
            message,
            metadata=metadata,
            # A request that exceeds the limit alone is never admitted.
            retry_after=self._retry_after if items <= self._limit else None,
        )


class Authorization:
    """Enters the caller, or refuses the call.

    Args:
        guard: Authenticates and authorizes callers.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Enters the caller.

        Raises:
            ServiceError: UNAUTHENTICATED, PERMISSION_DENIED or UNIMPLEMENTED.
        """
        self._guard.authorize(call.method, call.context, call.metadata)
        await proceed(call)


class Gates:
    """Passes each call through the gate of its contract (see ``dramaturg.service.contract``).

    Args:
        gates: The gates of the contracts that have one, by their full names.
        weigh: The number of items in the request of a call.
        guard: Authenticates callers.
    """

    def __init__(self, gates: Mapping[str, Gate], weigh: Callable[[Call], int], guard: Guard) -> None:
        self._weigh = weigh
        self._gates = gates
        self._guard = guard

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Passes the gate.

        Raises:
            ServiceError: The gate refuses the call.
        """
        gate = self._gates.get(call.method[1:].partition("/")[0])
        if gate is None:
            await proceed(call)
            return
        if self._guard.tenant_of_token() is None:
            await gate.start(call.method, current().tenant)
        async with gate.passing(call.method, self._weigh(call), call.context) as answered:
            call.send = partial(_send, call.send, answered)
            await proceed(call)


async def _send(send: Any, answered: Any, response: Any) -> None:
    answered(response)
    await send(response)
