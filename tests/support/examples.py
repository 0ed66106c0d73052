"""The examples, started as a user starts them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from tests.support.ports import free_port

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@asynccontextmanager
async def running_judge(file: str) -> AsyncIterator[str]:
    """Starts ``examples/judges/<file>`` as a process; yields its target. It must drain and end well."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / "judges" / file),
        *("--port", str(port)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(60):
            await channel.channel_ready()
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0, "it drains and ends well"


def lines_of_code(file: str) -> int:
    """How many lines of an example of a judge are neither blank nor its opening docstring."""
    text = (EXAMPLES / "judges" / file).read_text(encoding="utf-8")
    return sum(bool(line.strip()) for line in text.split('"""', 2)[2].splitlines())
