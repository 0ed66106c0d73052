"""Runs the parsing of long texts in a bounded pool of threads, so that it does not hold up the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dramaturg.service.auth import caller
from dramaturg.service.threads import TenantThreads

MAX_INLINE_LENGTH = 16_000
"""The maximum length of a text that is parsed in the event loop, in characters. It takes under 50 ms."""
THREADS = 2
"""The number of threads of a process. A tenant has one at most."""

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_threads = TenantThreads(THREADS, per_tenant=1)


async def parse(
    length: int, parser: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Parses a text, in a thread where it is long, in the turn of the tenant that the call is made for.

    Args:
        length: The length of the text, in characters.
        parser: The parser.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    if length <= MAX_INLINE_LENGTH:
        return parser(*args, **kwargs)
    return await _threads(caller.current().tenant, parser, *args, **kwargs)
