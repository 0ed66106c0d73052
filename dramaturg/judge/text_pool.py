"""Runs the parsing of long texts in a bounded pool of threads, so that it does not hold up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

MAX_INLINE_LENGTH = 16_000
"""The maximum length of a text that is parsed in the event loop, in characters. It takes under 50 ms."""
THREADS = 2
"""The number of threads of a process."""

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="parser")


async def parse(
    length: int, parser: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Parses a text, in a thread where it is long.

    Args:
        length: The length of the text, in characters.
        parser: The parser.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    if length <= MAX_INLINE_LENGTH:
        return parser(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: parser(*args, **kwargs))
