"""Refuses requests that break the limits of the contract, before the servicer sees them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

from google.protobuf.message import Message

from dramaturg.service.interceptors.around import AroundInterceptor, Context
from dramaturg.service.validation import validate


class ValidationInterceptor(AroundInterceptor):
    """Validates every request message, each message of a stream too."""

    def around(self, method: str, context: Context) -> AbstractAsyncContextManager[None]:
        """Does nothing: only messages are looked at."""
        del method, context
        return nullcontext()

    def received(self, message: object, context: Context) -> None:
        """Raises INVALID_ARGUMENT with every violation."""
        del context
        if isinstance(message, Message):
            validate(message)
