"""Threads for blocking calls and long computations, the turns of tenants, and concurrent awaiting."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from dramaturg.service.auth import caller


@dataclass(eq=False, slots=True)
class FairShare:
    """One claim on the slots of a semaphore, for example of one run. Its limits may change at any time."""

    tenant: str
    limit: int
    """The most slots the share holds at once."""
    priority: int = 0
    """Orders the shares of one tenant, the highest first."""
    used: int = 0
    """The slots the share holds."""
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    """The waiters, the longest first."""

    @property
    def wants_slot(self) -> bool:
        """Whether a waiter exists and the limit allows another slot."""
        while self.waiting and self.waiting[0].done():
            self.waiting.popleft()
        return bool(self.waiting) and self.used < self.limit


class FairSemaphore:
    """A semaphore with shares.

    A free slot goes to the tenant that holds fewest; within the tenant to the share of the highest priority,
    then to the share that holds fewest, then to the share served least recently. A tenant therefore gains
    nothing from many runs or high priorities, and slots that other tenants do not request are free to use.

    Bound to one event loop.

    Args:
        total: The number of slots.
        per_tenant: The most slots of one tenant. None: any number.
    """

    def __init__(self, total: int, per_tenant: int | None = None) -> None:
        self._free = total
        self._per_tenant = per_tenant
        self._shares: dict[str, list[FairShare]] = {}
        """By tenant. Tenants, and the shares of each tenant, are ordered by their last turn."""
        self._used: dict[str, int] = {}
        """The slots that each tenant holds."""
        self._pending = 0
        """Acquisitions that wait, or hold a slot but have not resumed."""

    @property
    def has_waiting(self) -> bool:
        """Whether an acquisition waits."""
        return self._pending > 0

    def open_share(self, tenant: str, limit: int, priority: int = 0) -> FairShare:
        """Registers a share of a tenant."""
        share = FairShare(tenant, limit, priority)
        self._shares.setdefault(tenant, []).append(share)
        self._used.setdefault(tenant, 0)
        return share

    def close_share(self, share: FairShare) -> None:
        """Removes a share that neither holds nor awaits a slot."""
        self._shares[share.tenant].remove(share)
        if not self._shares[share.tenant]:
            del self._shares[share.tenant], self._used[share.tenant]

    def adjust(self, share: FairShare, limit: int, priority: int) -> None:
        """Changes the limits of a share. Slots held above a lower limit are kept until released."""
        share.limit, share.priority = limit, priority
        self._assign()

    def slot(self, share: FairShare) -> Slot:
        """Holds one slot of a share within an ``async with`` block."""
        return Slot(self, share)

    @asynccontextmanager
    async def single(self, tenant: str, priority: int = 0) -> AsyncIterator[None]:
        """Holds one slot within an ``async with`` block, under a share of its own."""
        share = self.open_share(tenant, 1, priority)
        try:
            async with self.slot(share):
                yield
        finally:
            self.close_share(share)

    async def acquire(self, share: FairShare) -> None:
        """Takes one slot of a share, waiting until one is free. Pair it with ``release``."""
        # While a slot is free, no waiter is entitled to it.
        if self._free and share.used < share.limit and not share.waiting and self._may_take(share.tenant):
            self._grant(share)
            return
        turn = asyncio.get_running_loop().create_future()
        share.waiting.append(turn)
        await self._wait(share, turn, self._assign)

    async def renew(self, share: FairShare) -> None:
        """Returns a slot of a share and takes one again, ahead of those that wait for the share.

        It waits while the share holds its limit, or others are entitled to the slot. If it is cancelled
        meanwhile, no slot is held.
        """
        turn = asyncio.get_running_loop().create_future()
        share.waiting.appendleft(turn)
        await self._wait(share, turn, lambda: self.release(share))

    async def _wait(self, share: FairShare, turn: asyncio.Future[None], begin: Callable[[], None]) -> None:
        self._pending += 1
        try:
            begin()
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(share)
            raise
        finally:
            self._pending -= 1

    def release(self, share: FairShare) -> None:
        """Returns a slot that ``acquire`` took."""
        share.used -= 1
        self._used[share.tenant] -= 1
        self._free += 1
        if self._pending:
            self._assign()

    def _assign(self) -> None:
        while self._pending and self._free and (share := self._next()):
            self._grant(share)
            share.waiting.popleft().set_result(None)

    def _grant(self, share: FairShare) -> None:
        # Round-robin among equals: the share and its tenant move to the end.
        shares = self._shares.pop(share.tenant)
        if len(shares) > 1:
            shares.remove(share)
            shares.append(share)
        self._shares[share.tenant] = shares
        share.used += 1
        self._used[share.tenant] += 1
        self._free -= 1

    def _may_take(self, tenant: str) -> bool:
        return self._per_tenant is None or self._used[tenant] < self._per_tenant

    def _next(self) -> FairShare | None:
        """The share that gets the next slot; None if no share waits for one."""
        wanting: list[FairShare] = []
        fewest = None
        for tenant, shares in self._shares.items():
            used = self._used[tenant]
            if (
                (fewest is None or used < fewest)
                and self._may_take(tenant)
                and (wants := [one for one in shares if one.wants_slot])
            ):
                wanting, fewest = wants, used
                if not used:
                    break
        if len(wanting) < 2:
            return wanting[0] if wanting else None
        return min(wanting, key=lambda share: (-share.priority, share.used))


class Slot:
    """A slot of a share, held within an ``async with`` block."""

    __slots__ = ("_held", "_semaphore", "_share")

    def __init__(self, semaphore: FairSemaphore, share: FairShare) -> None:
        self._semaphore = semaphore
        self._share = share
        self._held = False

    async def __aenter__(self) -> Self:
        await self._semaphore.acquire(self._share)
        self._held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._held:
            self._semaphore.release(self._share)

    async def renew(self) -> None:
        """See ``FairSemaphore.renew``."""
        self._held = False
        await self._semaphore.renew(self._share)
        self._held = True


Result = TypeVar("Result")


async def gather_all(work: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Returns the results of all coroutines, in order. A failure or a cancellation cancels the others.

    All have ended when it returns or raises, so that no call is paid for whose answer is not used.

    Raises:
        Exception: The first error of a coroutine.
    """
    if len(work) == 1:  # a single coroutine needs no task
        return [await work[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except ExceptionGroup as failures:
        failure = failures.exceptions[0]
        failures.__traceback__ = None  # The group refers to itself by a frame.
    else:
        return [task.result() for task in tasks]
    # An error refers to this frame, and to the group if it is raised where the group is handled. Neither may
    # refer to the error: only a search for garbage, which is rare, would free what its frames know.
    try:
        raise failure
    finally:
        del failure, tasks


Parameters = ParamSpec("Parameters")


class ThreadPool:
    """Runs blocking calls in threads of its own.

    The default executor of the event loop does not serve: DBOS replaces it and shuts it down.

    Args:
        size: The number of threads.
    """

    def __init__(self, size: int) -> None:
        self._executor = ThreadPoolExecutor(size, thread_name_prefix="calls")

    async def __call__(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the result of a blocking call, which has the context of its caller."""
        return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    def submit(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Begins a blocking call, which has the context of its caller."""
        context = copy_context()
        return self._executor.submit(lambda: context.run(function, *args, **kwargs))

    def start(self, function: Callable[[], object]) -> None:
        """Makes a blocking call without waiting for it: here if the threads have ended."""
        try:
            self._executor.submit(function)
        except RuntimeError:
            function()

    def close(self) -> None:
        """Ends the threads after their current calls; calls that wait are cancelled."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Turn:
    """A slot that a tenant holds, until ``end`` or the end of a ``with`` block."""

    __slots__ = ("_release",)

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Returns the slot; has no effect the second time."""
        release, self._release = self._release, None
        if release is not None:
            release()


class TenantTurns:
    """Slots in which tenants take turns. Bound to one event loop while a slot is held.

    A free slot goes to the tenant that holds fewest, and no tenant holds more than its share.

    Args:
        size: The number of slots.
        per_tenant: The most slots of one tenant.
    """

    def __init__(self, size: int, per_tenant: int) -> None:
        self._slots = FairSemaphore(size)
        self._per_tenant = per_tenant
        self._shares: dict[str, FairShare] = {}
        self._calls: Counter[str] = Counter()

    @property
    def is_busy(self) -> bool:
        """Whether a slot is held or awaited."""
        return bool(self._calls)

    @property
    def has_waiting(self) -> bool:
        """Whether a call waits for a slot."""
        return self._slots.has_waiting

    async def take(self, tenant: str) -> Turn:
        """Waits for a slot. End the turn."""
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = self._slots.open_share(tenant, self._per_tenant)
        self._calls[tenant] += 1
        try:
            await self._slots.acquire(share)
        except BaseException:
            self._leave(tenant, share)
            raise

        def release() -> None:
            self._slots.release(share)
            self._leave(tenant, share)

        return Turn(release)

    def _leave(self, tenant: str, share: FairShare) -> None:
        self._calls[tenant] -= 1
        if not self._calls[tenant]:
            del self._calls[tenant], self._shares[tenant]
            self._slots.close_share(share)


class TenantThreads:
    """Threads in which tenants take turns.

    No tenant holds all threads, so that a call of another one begins at once; a thread is held until its
    call returns, also where the caller has cancelled it. The default is for long calls: those of one tenant
    delay neither short calls nor the long calls of another tenant by more than one piece each.

    Args:
        size: The number of threads.
        per_tenant: The most threads of one tenant.
    """

    def __init__(self, size: int = 2, per_tenant: int = 1) -> None:
        self._threads = ThreadPool(size)
        self._turns = TenantTurns(size, per_tenant)

    async def __call__(
        self,
        tenant: str,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Returns the result of a blocking call, in the fair turn of a tenant."""
        turn = await self._turns.take(tenant)
        try:
            call = self._threads.submit(function, *args, **kwargs)
            result = await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if call.cancel() or call.done():
                turn.end()
            else:
                _when_done(call, turn)
            raise
        except BaseException:
            turn.end()
            del call  # It refers to its error, and this to the call by this frame.
            raise
        turn.end()
        return result

    def close(self) -> None:
        """Ends the threads after their current calls; calls that wait are cancelled."""
        self._threads.close()


def _when_done(call: Future[Result], turn: Turn) -> None:
    """Ends a turn in the current event loop when a call has returned."""
    loop = asyncio.get_running_loop()

    def end(_: Future[Result]) -> None:
        try:
            loop.call_soon_threadsafe(turn.end)
        except RuntimeError:  # the loop has ended
            turn.end()

    call.add_done_callback(end)


class StoppedError(Exception):
    """A computation ended early, since no caller waits for its result."""


IsStopped = Callable[[], bool]
"""Whether the caller of a computation was cancelled."""


async def until_cancelled(
    run: Callable[[Callable[[], Result]], Awaitable[Result]],
    function: Callable[Concatenate[IsStopped, Parameters], Result],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    """Runs a long computation in a thread, which ends soon after its caller is cancelled.

    Args:
        run: Runs a blocking call in a thread, for example ``asyncio.to_thread``.
        function: The computation. It calls its first argument between its parts, and raises StoppedError or
            returns once that is True.
        args: Its further arguments.
        kwargs: Its keyword arguments.
    """
    stopped = threading.Event()
    try:
        return await run(lambda: function(stopped.is_set, *args, **kwargs))
    finally:
        stopped.set()


Checkpoint = Callable[[], None]
"""Called between the parts of a computation. Raises StoppedError once the caller was cancelled."""


async def with_checkpoint(
    run: Callable[[Callable[[], Result]], Awaitable[Result]], work: Callable[[Checkpoint], Result]
) -> Result:
    """Runs a long computation in a thread, which ends at its next checkpoint after its caller is cancelled.

    Args:
        run: Runs a blocking call in a thread, for example ``asyncio.to_thread``.
        work: The computation.
    """

    def start(is_stopped: IsStopped) -> Result:
        def checkpoint() -> None:
            if is_stopped():
                raise StoppedError

        checkpoint()
        return work(checkpoint)

    return await until_cancelled(run, start)


MAX_INLINE_LENGTH = 16_000
"""The maximum length of a text that is parsed in the event loop, in characters. It takes under 50 ms."""
THREADS = 2
"""The number of threads of a process. A tenant has one at most."""

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
