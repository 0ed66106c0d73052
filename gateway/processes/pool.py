"""Processes with limits, shared by tenants in turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError, too_large
from dramaturg.service.threads import TenantThreads, TenantTurns, ThreadPool, Turn
from gateway.processes.process import (
    DONE,
    QUESTION,
    Arguments,
    LimitedProcess,
    OutOfTimeError,
    ProcessDiedError,
    ProcessLimits,
    Task,
)

logger = logging.getLogger(__name__)

Answer = Callable[[bytes], Awaitable[bytes]]
"""Answers the question of a task."""

NO_PROCESS = ProcessLimits(0)
"""The limits of a pool without processes."""
MAX_STALL_SECONDS = 60.0
"""The time in which a caller may keep a process waiting, to read a piece or to send its next message, while
calls wait for a process."""
_CHECK_SECONDS = 1.0
_END = object()


async def no_answer(question: bytes) -> bytes:
    """Answers tasks that ask nothing."""
    raise AssertionError(f"a task asks {question[:50]!r}")


class ProcessPool:
    """Runs tasks in processes, each for one task at a time. Bound to one event loop.

    A free process goes to the tenant that holds fewest, and no tenant holds all. Processes start when they
    are needed and are kept. A process whose task is cancelled, or whose caller reads too slowly while others
    wait, is killed; the next task starts another.

    Args:
        size: The number of processes. 0: tasks run in threads of this process, without limits.
        limits: The limits of each.
        per_tenant: The most processes of one tenant.
    """

    def __init__(self, size: int, limits: ProcessLimits = NO_PROCESS, per_tenant: int = 1) -> None:
        self._limits = limits
        self._turns = TenantTurns(max(size, 1), per_tenant)
        self._threads = ThreadPool(max(size, 1))
        self._here = None if size else TenantThreads()
        self._idle: list[LimitedProcess] = []
        self._running: set[LimitedProcess] = set()

    async def stream(
        self,
        tenant: str,
        answer: Answer,
        task: Task[Arguments],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> AsyncGenerator[bytes]:
        """Yields the parts of the result of a task, in the turn of a tenant.

        Args:
            tenant: The tenant.
            answer: Answers the questions of the task.
            task: A function of a module.
            args: Its arguments, which can be pickled.
            kwargs: Further arguments.

        Raises:
            ServiceError: The task raised it; UNAVAILABLE: its process died; RESOURCE_EXHAUSTED: it needs too
                much memory or processor time, or its caller kept it waiting while others waited.
        """
        if self._here is not None:
            pieces = self._stream_here(self._here, tenant, answer, task, *args, **kwargs)
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
            return
        turn = await self._turns.take(tenant)
        process = self._idle.pop() if self._idle else LimitedProcess(self._limits)
        self._running.add(process)
        caller_limit = _CallerTimeLimit(process, turn, self._turns)
        is_reusable = False
        try:
            await self._threads(process.begin, task, *args, **kwargs)
            while True:
                kind, content = await self._threads(process.receive)
                if kind == DONE:
                    is_reusable = True
                    return
                with caller_limit:
                    if kind == QUESTION:
                        reply = await answer(content)
                    else:
                        yield content
                if kind == QUESTION:
                    await self._threads(process.answer, reply)
        except ServiceError:
            is_reusable = process.has_failed
            raise
        except (ProcessDiedError, OSError) as error:
            raise _died(error) from error
        finally:
            self._running.discard(process)
            turn.end()
            if is_reusable:
                self._idle.append(process)
            else:
                process.kill()
                self._threads.start(process.close)

    async def result(
        self,
        tenant: str,
        answer: Answer,
        task: Task[Arguments],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> bytes:
        """The whole result of a task; raises as ``stream`` does."""
        pieces = self.stream(tenant, answer, task, *args, **kwargs)
        async with aclosing(pieces):
            return b"".join([piece async for piece in pieces])

    def close(self) -> None:
        """Ends all processes."""
        for process in self._running:
            process.kill()
        for process in self._idle:
            process.close()
        self._idle.clear()
        self._threads.close()
        if self._here is not None:
            self._here.close()

    async def _stream_here(
        self,
        threads: TenantThreads,
        tenant: str,
        answer: Answer,
        task: Task[Arguments],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()

        def ask(question: bytes) -> bytes:
            return asyncio.run_coroutine_threadsafe(_awaited(answer, question), loop).result()

        pieces: Iterator[bytes] = task(ask, *args, **kwargs)
        while (piece := await threads(tenant, next, pieces, _END)) is not _END:
            assert isinstance(piece, bytes)
            yield piece


async def _awaited(answer: Answer, question: bytes) -> bytes:
    return await answer(question)


class _CallerTimeLimit:
    """Kills a process that its caller keeps waiting while calls wait for a turn, and ends its turn.

    The times in which it waits for the caller are those within ``with`` blocks.
    """

    def __init__(self, process: LimitedProcess, turn: Turn, turns: TenantTurns) -> None:
        self._process = process
        self._turn = turn
        self._turns = turns
        self._left = MAX_STALL_SECONDS
        self._is_over = False

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._begun = loop.time()
        self._timer = loop.call_later(max(self._left, 0.0), self._check)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        self._left -= asyncio.get_running_loop().time() - self._begun
        if self._is_over and error is None:
            raise _too_slow()

    def _check(self) -> None:
        if self._turns.has_waiting:
            self._is_over = True
            self._process.kill()
            self._turn.end()
        else:
            self._timer = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)


def _died(error: Exception) -> ServiceError:
    if isinstance(error, OutOfTimeError):
        # It would take as long again.
        return too_large(f"the work cannot be done: {error}")
    logger.error("a process ended during its task: %s", error)
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_OVERLOADED,
        "the process of the call ended",
        retry_after=_CHECK_SECONDS,
    )


def _too_slow() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_OVERLOADED,
        f"the caller kept the call waiting for {MAX_STALL_SECONDS:g} s in all, and other calls wait",
        metadata={"seconds": f"{MAX_STALL_SECONDS:g}"},
        retry_after=_CHECK_SECONDS,
    )
