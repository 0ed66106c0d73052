"""A bounded pool of solver processes for one event loop.

A process is killed when its caller is cancelled, its time is over or it fails; another one is started on
demand. The event loop only waits for pipes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

logger = logging.getLogger(__name__)

_LINE_LIMIT = 1 << 20
_GRACE_SECONDS = 0.25
"""The time after its limit before a solver is killed."""


class SolverError(RuntimeError):
    """A solver process ended without a result, e.g. out of memory."""


class SolverPool:
    """Runs tasks of ``worker``, at most ``size`` at once; others wait.

    An async context manager. Processes start on demand, or immediately with ``warm``.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError("a pool needs at least one process")
        self._slots = asyncio.Semaphore(size)
        self._idle: deque[asyncio.subprocess.Process] = deque()
        self._processes: set[asyncio.subprocess.Process] = set()
        self._loading: set[asyncio.subprocess.Process] = set()
        self._reapers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in list(self._processes):
            self._kill(process)
        await asyncio.gather(*self._reapers)

    @property
    def process_ids(self) -> list[int]:
        return sorted(process.pid for process in self._processes)

    async def warm(self) -> None:
        """Starts one process, so that the first task does not wait for imports."""
        self._idle.append(await self._start())

    async def run(
        self, task: Mapping[str, Any], time_limit: float, until: float | None = None
    ) -> dict[str, Any]:
        """Runs a task.

        Args:
            task: The task, without its time limit.
            time_limit: Seconds from the moment a process is ready. The process is killed soon after.
            until: The latest end of the search, on the clock of ``time.monotonic``.

        Returns:
            The last result, without "final".

        Raises:
            TimeoutError: There was no result in time.
            SolverError: The process ended without a result.
        """
        async with self._slots:
            process = self._idle.popleft() if self._idle else await self._start()
            try:
                await self._until_ready(process)
                if until is not None:
                    time_limit = max(0.0, min(time_limit, until - time.monotonic()))
                answer, is_done = await _ask(process, {**task, "time_limit": time_limit}, time_limit)
            except BaseException:
                self._kill(process)
                raise
            if is_done:
                self._idle.append(process)
            else:
                self._kill(process)
            return answer

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.graph.solver.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            # The process has the same module path, regardless of its working directory.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
        )
        self._processes.add(process)
        self._loading.add(process)
        return process

    async def _until_ready(self, process: asyncio.subprocess.Process) -> None:
        """Waits until a new process has loaded its modules, which does not count against time limits."""
        if process in self._loading:
            assert process.stdout is not None
            await process.stdout.readline()
            self._loading.discard(process)

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        self._processes.discard(process)
        self._loading.discard(process)
        with suppress(ProcessLookupError):
            process.kill()
        reaping = asyncio.create_task(_reap(process))
        self._reapers.add(reaping)
        reaping.add_done_callback(self._reapers.discard)


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Waits for a killed process and closes its pipes."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    await process.stdout.read()
    await process.wait()


async def _ask(
    process: asyncio.subprocess.Process, task: Mapping[str, Any], time_limit: float
) -> tuple[dict[str, Any], bool]:
    """The last result of a process within the time limit, and whether the task is complete."""
    assert process.stdin is not None
    assert process.stdout is not None
    answer: dict[str, Any] = {}
    try:
        async with asyncio.timeout(time_limit + _GRACE_SECONDS):
            process.stdin.write(json.dumps(task).encode() + b"\n")
            await process.stdin.drain()
            while line := await process.stdout.readline():
                answer = json.loads(line)
                if answer.pop("final"):
                    return answer, True
    except TimeoutError:
        if not answer:
            raise
        return answer, False
    except (BrokenPipeError, ConnectionResetError):
        pass
    logger.warning("a solver process ended unexpectedly", extra={"fields": {"pid": process.pid}})
    if not answer:
        raise SolverError("the solver process ended without a result")
    return answer, False
