"""Refuses requests that break the limits of the contract, before the servicer sees them."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext

from google.protobuf.message import Message

from dramaturg.service.interceptors.around import AroundInterceptor, Context
from dramaturg.service.validation import validate

LARGE_BYTES = 256 * 1024
"""A message above this is looked at in a thread: with hundreds of thousands of elements it takes a second, in
which no other call, nor a probe, would be answered."""


class ValidationInterceptor(AroundInterceptor):
    """Validates every request message, each message of a stream too."""

    def around(self, method: str, context: Context) -> AbstractAsyncContextManager[None]:
        """Does nothing: only messages are looked at."""
        del method, context
        return nullcontext()

    async def received(self, message: object, context: Context) -> None:
        """Raises INVALID_ARGUMENT with every violation."""
        del context
        if not isinstance(message, Message):
            return
        if message.ByteSize() > LARGE_BYTES:
            await asyncio.to_thread(validate, message)
        else:
            validate(message)
