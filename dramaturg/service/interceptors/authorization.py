"""Refuses calls of callers that may not make them."""

from __future__ import annotations

from dramaturg.service.auth.guard import Guard
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
