"""A gate before a contract: a deployment's own rule of who may call how much."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

Answered = Callable[[Any], None]
"""Is told each message that a call answers with."""


class Gate(Protocol):
    """Stands around the calls of a contract, once the callers are known and the server has room for them."""

    def passing(self, method: str) -> AbstractAsyncContextManager[Answered]:
        """Lets a call pass: what is within ``async with`` is the call.

        Args:
            method: The full name of the method.

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

    def passing(self, method: str) -> AbstractAsyncContextManager[Answered]:
        """Lets the call pass."""
        del method
        return self._pass


OPEN_GATE = OpenGate()
"""The gate of contracts that have none."""


def _ignore(message: Any) -> None:
    del message
