"""Runs ``dramaturg`` as a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import command_server

COMMAND = (sys.executable, "-m", "dramaturg")
ROOT = Path(__file__).resolve().parents[2]


class Finished(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as the one JSON object that it must be."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


@asynccontextmanager
async def start(
    *arguments: str | Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Starts the command in the repository's root, as a fork; kills it at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *command_server.command(),
        *map(str, arguments),
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1", **(environment or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def finish(process: asyncio.subprocess.Process, stdin: bytes = b"", timeout: float = 100) -> Finished:
    """Waits for the end of a command."""
    out, err = await asyncio.wait_for(process.communicate(stdin), timeout)
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


async def dramaturg(
    *arguments: str | Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> Finished:
    """Runs the command to its end."""
    async with start(*arguments, environment=environment) as process:
        return await finish(process, stdin)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
