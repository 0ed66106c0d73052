"""Refuses requests that break the limits of the contract, before the servicer sees them."""

from __future__ import annotations

import asyncio

from google.protobuf.message import Message

from dramaturg.service.validation import validate

LARGE_BYTES = 256 * 1024
"""A message above this is looked at in a thread: with hundreds of thousands of elements it takes a second, in
which no other call, nor a probe, would be answered."""


async def check(message: object) -> None:
    """Raises ServiceError, INVALID_ARGUMENT with every violation."""
    if not isinstance(message, Message):
        return
    if message.ByteSize() > LARGE_BYTES:
        await asyncio.to_thread(validate, message)
    else:
        validate(message)
