"""Gives every call a request id and a deadline, for all code that works on it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from dramaturg.service import context
from dramaturg.service.context import REQUEST_ID_METADATA, RequestContext
from dramaturg.service.interceptors.call import Call, Proceed, field_names

_REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


class RequestContexts:
    """Enters the context of the request.

    The request id is the caller's, or a new one. It is in the metadata or, where it is not, in the message's
    own field ``request_id``. One that is not 1 to 128 letters, digits or ``_.:/+=-`` is replaced, since it
    goes into logs and headers.

    Args:
        default_deadline: Seconds for a call that brings no deadline.
        maximum_deadline: The most seconds for any call.
    """

    def __init__(self, *, default_deadline: float, maximum_deadline: float) -> None:
        self._default = default_deadline
        self._maximum = maximum_deadline

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Enters the context."""
        inbound: float | None = call.context.time_remaining()  # the stub's type leaves out None
        call.seconds = self._default if inbound is None else min(inbound, self._maximum)
        request_id = _from_metadata(call)
        if request_id is None:
            if call.request_bytes is None:
                call.request = _named_by_its_messages(call.request)
            else:
                request_id = _from_message(call.request)
        context.enter(
            RequestContext(
                request_id or os.urandom(16).hex(),
                call.method,
                call.context.peer(),
                time.monotonic() + call.seconds,
            )
        )
        await proceed(call)


async def _named_by_its_messages(messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for message in messages:
        request_id, request = _from_message(message), context.current()
        if request_id is not None and request is not None:
            context.enter(request._replace(request_id=request_id))
        yield message


def _from_metadata(call: Call) -> str | None:
    for key, value in call.metadata:
        if key == REQUEST_ID_METADATA and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return None


def _from_message(message: Any) -> str | None:
    if "request_id" not in field_names(message):
        return None
    request_id: object = message.request_id
    return request_id if isinstance(request_id, str) and _REQUEST_ID.fullmatch(request_id) else None
