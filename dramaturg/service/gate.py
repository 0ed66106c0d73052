"""Gates of contracts: admission rules of a deployment, for example quotas."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from dramaturg.service.rpc import Context

Answered = Callable[[Any], None]
"""Called with each response of a call."""


class Gate(Protocol):
    """Encloses the calls of a contract, after authorization and admission."""

    def passing(self, method: str, items: int, context: Context) -> AbstractAsyncContextManager[Answered]:
        """Encloses a call by ``async with``.

        Args:
            method: The full name of the method.
            items: The number of items in the request (``Contract.weights``), at least 1.
            context: The context that the servicer gets, which tells the call from others.

        Raises:
            ServiceError: When entered: the call is refused.
        """


class _Pass:
    async def __aenter__(self) -> Answered:
        return _ignore

    async def __aexit__(self, *_: object) -> None:
        pass


class OpenGate:
    """Lets every call pass."""

    _pass = _Pass()

    def passing(self, method: str, items: int, context: Context) -> AbstractAsyncContextManager[Answered]:
        """Lets the call pass."""
        del method, items, context
        return self._pass


OPEN_GATE = OpenGate()
"""The gate of contracts that have none."""


def _ignore(message: Any) -> None:
    del message
