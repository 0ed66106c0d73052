"""Bounds the responses of a tenant that are built or not yet received.

gRPC holds a response until its caller has read it: without a bound, a few hundred concurrent reads of pages,
or callers that read nothing, take gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dramaturg.service.auth.caller import current
from dramaturg.service.interceptors.call import Call, Proceed
from dramaturg.service.threads import TenantTurns

MAX_RESPONSES = 32
"""The most large responses of a method at once."""
MAX_RESPONSES_OF_TENANT = 2
"""The same of one tenant. Further calls wait until their deadline."""


class ResponseTurns:
    """The slots of large responses. Those of a method that a caller does not read delay no other method.

    Args:
        methods: The full names of the methods with large responses.
    """

    def __init__(self, methods: Iterable[str]) -> None:
        self._turns = {method: TenantTurns(MAX_RESPONSES, MAX_RESPONSES_OF_TENANT) for method in methods}

    def of(self, method: str) -> TenantTurns | None:
        """The slots of a method. None: its responses are not large."""
        return self._turns.get(method)


class LargeResponses:
    """Holds a slot of the caller's tenant from the start of a call until its response is received.

    Args:
        methods: The full names of the methods with large responses.
    """

    def __init__(self, methods: Iterable[str]) -> None:
        self._turns = ResponseTurns(methods)

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Waits for a slot."""
        turns = self._turns.of(call.method)
        if turns is not None:
            turn = await turns.take(current().tenant)
            end: Any = lambda _: turn.end()  # noqa: E731 - its type in the stubs is a class
            # Called when the call has ended for its caller, too.
            call.context.add_done_callback(end)
        await proceed(call)
