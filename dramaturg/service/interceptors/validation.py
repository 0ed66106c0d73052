"""Refuses requests that break the limits of the contract, before the servicer sees them."""

from __future__ import annotations

import asyncio

from google.protobuf.message import Message

from dramaturg.service.validation import validate

LARGE_BYTES = 256 * 1024
"""A message above this is looked at in a thread: with hundreds of thousands of elements it takes a second, in
which no other call, nor a probe, would be answered."""


async def check(message: object, size: int | None = None) -> None:
    """Looks at a message.

    Args:
        message: The message, or what is none, which passes.
        size: The bytes that it was read from, where that is known.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation.
    """
    if not isinstance(message, Message):
        return
    size = message.ByteSize() if size is None else size
    if size > LARGE_BYTES:
        await asyncio.to_thread(validate, message, size)
    else:
        validate(message, size)
