"""Refuses calls by the caller's permissions and by the gate of the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dramaturg.service.auth.guard import Guard
from dramaturg.service.gate import OPEN_GATE, Gate
from dramaturg.service.interceptors.call import Call, Proceed


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
    """Passes each call through the gate of its contract (see ``dramaturg.service.gate``).

    Args:
        gates: The gates, by the contracts' full names.
        weigh: The number of items in the request of a call.
    """

    def __init__(self, gates: Mapping[str, Gate], weigh: Callable[[Call], int]) -> None:
        self._weigh = weigh
        self._gates = {contract: gate for contract, gate in gates.items() if gate is not OPEN_GATE}

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Passes the gate.

        Raises:
            ServiceError: The gate refuses the call.
        """
        gate = self._gates.get(call.method[1:].partition("/")[0]) if self._gates else None
        if gate is None:
            await proceed(call)
            return
        async with gate.passing(call.method, self._weigh(call), call.context) as answered:
            call.send = partial(_send, call.send, answered)
            await proceed(call)


async def _send(send: Any, answered: Any, response: Any) -> None:
    answered(response)
    await send(response)
