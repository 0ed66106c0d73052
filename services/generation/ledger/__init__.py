"""The ledger: completions by fingerprint, and calls in flight. See ``docs/operate/generation.md``.

A caller that needs its change to be durable waits for its commit. Changes are committed in groups. On
PostgreSQL a group is those of a few milliseconds, and those that arrive during a commit; keys are looked up
in batches: those requested during a lookup form the next batch. On a SQLite file a group is the changes of
one turn of the event loop. It is committed, and a key is looked up, in the loop, which takes tens of
microseconds; while another process has the lock, as on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from dramaturg.database import StoreError
from dramaturg.service.threads import ThreadPool
from services.generation import records
from services.generation.calls import Purchase
from services.generation.ledger.store import (
    RENEWAL_SECONDS,
    Changes,
    LedgerError,
    LedgerKind,
    LedgerStatus,
    LedgerUnavailableError,
    LostCall,
    Process,
    SentCall,
    StoredCompletion,
    migrate_ledger,
)
from services.generation.metrics import LEDGER_FAILURES, LEDGER_SECONDS, LEDGER_UNWRITTEN

if TYPE_CHECKING:
    from services.generation.ledger.batches import BatchRequest, BatchStore, WaitingRequest
    from services.generation.ledger.store import LedgerStore


__all__ = [
    "IN_MEMORY",
    "Ledger",
    "LedgerError",
    "LedgerKind",
    "LedgerStatus",
    "LedgerUnavailableError",
    "LostCall",
    "is_ledger_url",
    "migrate_ledger",
    "open_ledger",
]


Key = TypeVar("Key")
Value = TypeVar("Value")


class BatchedLookup(Generic[Key, Value]):
    """Looks keys up in batches, one batch at a time.

    Args:
        look_up: Looks up several keys and omits those that it does not find. All callers that wait for one of
            these keys receive its exceptions.
        largest: The maximum number of keys in a batch.
    """

    def __init__(
        self, look_up: Callable[[list[Key]], Awaitable[Mapping[Key, Value]]], *, largest: int = 200
    ) -> None:
        self._look_up = look_up
        self._largest = largest
        self._asked: dict[Key, asyncio.Future[Value | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, key: Key) -> Value | None:
        """Returns the value of a key, or None where the key is not found."""
        answer = self._asked.get(key)
        if answer is None:
            answer = self._asked[key] = asyncio.get_running_loop().create_future()
            if self._task is None:
                self._task = asyncio.create_task(self._work())
        # Shielded: cancelling one caller must not affect the others.
        return await asyncio.shield(answer)

    async def _work(self) -> None:
        try:
            while self._asked:
                batch = {key: self._asked.pop(key) for key in list(self._asked)[: self._largest]}
                await self._answer(batch)
        finally:
            self._task = None

    async def _answer(self, batch: Mapping[Key, asyncio.Future[Value | None]]) -> None:
        try:
            values = await self._look_up(list(batch))
        except BaseException as error:
            for answer in batch.values():
                _fail(answer, error)
            if not isinstance(error, Exception):
                raise
        else:
            for key, answer in batch.items():
                answer.set_result(values.get(key))

    async def close(self) -> None:
        """Stops the lookups and cancels waiting callers."""
        task = self._task
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for answer in self._asked.values():
            answer.cancel()


def _fail(answer: asyncio.Future[Value | None], error: BaseException) -> None:
    if isinstance(error, Exception):
        answer.set_exception(error)
        answer.exception()  # marks the exception as retrieved where all callers were cancelled
    else:
        answer.cancel()


logger = logging.getLogger(__name__)

IN_MEMORY = ":memory:"
"""The setting that selects a ledger in memory."""
RETRY_SECONDS = 30.0
"""How long a query or a commit is retried while the database cannot be reached."""
LOCK_SECONDS = 5.0
"""How long a transaction waits for the lock of another process on a SQLite file."""
CLOSING_SECONDS = 5.0
"""How long closing waits for the last commit."""
GATHERING_SECONDS = 0.005
"""How long a commit waits for further changes: a transaction for each takes processor time, and calls of
models take seconds."""
_SETTLING_SECONDS = 1.0
_FIRST_WAIT_SECONDS = 0.1
_MAX_WAIT_SECONDS = 2.0
_FILE = "sqlite:///"
_DATABASE = ("postgresql://", "postgres://", "postgresql+psycopg://")
_FORMS = "sqlite:///PATH (four slashes for an absolute one), sqlite:// (in memory) or postgresql://..."

Result = TypeVar("Result")


def is_ledger_url(url: str) -> bool:
    """Whether the URL names a ledger: sqlite:///PATH, sqlite:// (in memory) or postgresql://..."""
    return url == "sqlite://" or url.startswith((_FILE, *_DATABASE))


@asynccontextmanager
async def open_ledger(url: str) -> AsyncIterator[Ledger]:
    """Opens a ledger, renews this process's lease, and closes the ledger at the end.

    Args:
        url: ``sqlite:///PATH``, ``sqlite://`` (in memory) or ``postgresql://...``.

    Raises:
        LedgerError: The store cannot be used; the message names the store and the reason.
    """
    if not is_ledger_url(url):
        raise LedgerError(f"the ledger's URL must be {_FORMS}")
    # Loads SQLAlchemy.
    from services.generation.ledger.store import LedgerStore

    writes, process = ThreadPool(1), Process.this()
    try:
        store = LedgerStore(url.replace(f"{_FILE}~/", f"{_FILE}{Path.home()}/", 1), LOCK_SECONDS)
        replicas = await writes(store.open, process)
    except BaseException as error:
        writes.close()
        if isinstance(error, StoreError):
            raise LedgerError(str(error)) from error
        raise
    ledger = Ledger(store, process, writes)
    ledger.count_replicas(replicas)
    renewing = asyncio.create_task(_keep_renewing(ledger))
    try:
        yield ledger
    finally:
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        await ledger.close()


async def _keep_renewing(ledger: Ledger) -> None:
    while True:
        await asyncio.sleep(RENEWAL_SECONDS)
        try:
            await ledger.renew()
        except StoreError as error:
            logger.warning("the ledger's lease could not be renewed: %s", error)


@dataclass(slots=True)
class _Group:
    """Changes that are committed together."""

    changes: Changes = field(default_factory=Changes)
    retry_until: float = 0.0
    """When a failed commit is not repeated any more, by the monotonic clock. 0: no caller waits for it."""
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    """One for each caller, so that a caller that is cancelled takes its commit from no other."""

    def end(self, error: Exception | None = None) -> None:
        """Tells the callers that the changes are committed, or the error."""
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


class Ledger:
    """Completions by the fingerprints of their requests, and calls in flight. Use [open_ledger].

    The order for each purchase: look up ([get]), record the call ([record_call]), send it, store the answer
    ([put]) or mark it as not stored ([mark_unstored]), use it. A call that is neither may have been charged
    without an answer of use.
    """

    def __init__(self, store: LedgerStore, process: Process, writes: ThreadPool) -> None:
        self._replicas = 1
        self._on_replicas: Callable[[int], None] = lambda _: None
        self._store = store
        self._process = process
        self._numbers = itertools.count(1)
        self._writes = writes
        """The only thread that writes."""
        # All transactions in memory use one connection.
        self._reads = writes if store.kind is LedgerKind.MEMORY else ThreadPool(1)
        self._lookup: BatchedLookup[str, str] = BatchedLookup(self._look_up)
        self._batch_lookup: BatchedLookup[str, BatchRequest] = BatchedLookup(self._look_up_batch_requests)
        self._next = _Group()
        self._committing = Changes()
        self._is_due = False
        """Whether the next turn of the event loop writes."""
        self._writer: asyncio.Task[None] | None = None
        self._is_writable = True
        self._is_closed = False
        LEDGER_UNWRITTEN.watch(lambda: self._unwritten)

    async def get(self, fingerprint: str) -> tuple[Purchase, ...]:
        """Returns the calls stored for a request, marked as cached. Empty: none are stored.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """
        found = self._store.try_look_up(fingerprint)
        if found is None:
            text = await self._lookup.get(fingerprint)
            found = () if text is None else (text,)
        if not found:
            return ()
        return tuple(one for text in found for one in records.from_text(text))

    async def record_call(self, fingerprint: str) -> int:
        """Records that a call is about to be sent. Returns its number after the commit.

        Raises:
            LedgerUnavailableError: The record cannot be written. The call must not be sent: its cost would go
                unreported if the process died.
        """
        number = next(self._numbers)
        try:
            await self._commit(
                lambda changes: changes.sent.append(SentCall(number, fingerprint, time.time()))
            )
        except StoreError as error:
            LEDGER_FAILURES.add("record")
            self.settle([number])  # whether the record was written may be unknown
            raise LedgerUnavailableError(f"no completions are bought: {error}") from error
        except BaseException:
            self.settle([number])
            raise
        return number

    async def put(
        self, fingerprint: str, purchases: Sequence[Purchase], batch_requests: Collection[str] = ()
    ) -> None:
        """Stores the calls in place of any stored before, and settles the records of this fingerprint.

        Returns after the commit. Calls with other fingerprints among them, such as the request to repair an
        answer, are not found by those, so that their records remain.

        Args:
            fingerprint: That of the request.
            purchases: The calls.
            batch_requests: The fingerprints of requests that waited for batches, and end with this.

        Raises:
            OSError: The store fails. The records of the calls remain.
        """
        completion = StoredCompletion(
            fingerprint,
            time.time(),
            records.to_text(purchases),
            records.call_numbers(purchases, fingerprint),
            batch_requests,
        )
        try:
            await self._commit(lambda changes: changes.stored.append(completion))
        except StoreError as error:
            raise OSError(f"a completion could not be stored: {error}") from error

    def settle(self, call_numbers: Collection[int]) -> None:
        """Removes the records of calls that were not charged, or whose answers are stored elsewhere."""
        self._change(lambda changes: changes.settled.update(call_numbers))

    def mark_unstored(self, call_numbers: Collection[int]) -> None:
        """Marks answered calls whose answers are not stored: sent again, they are charged again."""
        self._change(lambda changes: changes.unstored.update(call_numbers))

    def abandon(self, call_numbers: Collection[int]) -> None:
        """Marks abandoned calls, which may still be answered and charged."""
        self._change(lambda changes: changes.abandoned.update(call_numbers))

    async def find_batch_request(self, fingerprint: str) -> BatchRequest | None:
        """Returns a request that waits or waited for a batch, or None.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """
        return await self._batch_lookup.get(fingerprint)

    async def wait_for_batch(self, request: WaitingRequest) -> None:
        """Records a request that waits for a batch, or that it is asked for again. Returns after the commit.

        Raises:
            LedgerUnavailableError: The store fails.
        """
        await self._record(lambda changes: changes.asked.append(request))

    async def note_told(self, requests: Sequence[WaitingRequest]) -> None:
        """Records answers of no use whose cost a caller is told. Returns after the commit.

        Raises:
            LedgerUnavailableError: The store fails.
        """
        await self._record(lambda changes: changes.told.extend(requests))

    async def batch(self, work: Callable[[BatchStore], Result]) -> Result:
        """Returns what a transaction on batches returns.

        Raises:
            LedgerUnavailableError: The store fails.
        """
        try:
            return await self._writes(self._store.batch, work)
        except StoreError as error:
            raise LedgerUnavailableError(str(error)) from error

    async def is_dead(self, process: str) -> bool:
        """Returns whether a process that used the ledger is dead.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """
        return await self._query(lambda: self._store.is_dead(process))

    @property
    def process_id(self) -> str:
        """The id of this process."""
        return self._process.id

    async def status(self) -> LedgerStatus:
        """Counts completions and calls, with the latest changes of this process if they are written in time.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """
        self._write_turn()
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=_SETTLING_SECONDS)
        status = await self._query(self._store.status)
        return replace(status, unwritten=self._unwritten)

    def watch_replicas(self, on_replicas: Callable[[int], None]) -> None:
        """Calls a function with the number of live replicas of the ledger, now and at each renewal."""
        self._on_replicas = on_replicas
        on_replicas(self._replicas)

    def count_replicas(self, replicas: int) -> None:
        self._replicas = replicas
        self._on_replicas(replicas)

    async def renew(self) -> None:
        """Renews this process's lease, and writes changes whose commit failed.

        Raises:
            StoreError: The database is unavailable.
        """
        self.count_replicas(await self._writes(self._store.renew, self._process))
        self._write_changes()

    async def close(self) -> None:
        """Writes the pending changes and closes the store. Calls in flight count as lost from now on."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                self._write_turn()
                if self._writer is not None:
                    await self._writer
                await self._writes(self._store.leave, self._process)
        except (TimeoutError, StoreError) as error:
            logger.error("the %s could not be closed cleanly: %r", self._store.name, error)
        self._is_closed = True
        self._next.end(self._closed())
        await self._lookup.close()
        await self._batch_lookup.close()
        self._writes.close()
        self._reads.close()
        self._store.close()

    @property
    def _unwritten(self) -> int:
        return len(self._committing.stored) + len(self._next.changes.stored)

    async def _commit(self, change: Callable[[Changes], object]) -> None:
        """Makes a change and waits for its commit. Raises StoreError where it fails."""
        if self._is_closed:
            raise self._closed()
        group = self._next
        change(group.changes)
        self._write_changes()
        if not group.waiters:
            group.retry_until = time.monotonic() + RETRY_SECONDS
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.waiters.append(waiter)
        await waiter

    def _change(self, change: Callable[[Changes], object]) -> None:
        """Makes a change for whose commit no caller waits."""
        change(self._next.changes)
        self._write_changes()

    def _closed(self) -> StoreError:
        return StoreError(f"the {self._store.name} is closed")

    def _write_changes(self) -> None:
        """Has the next changes written with the next turn of the event loop."""
        if not self._is_due and self._writer is None and not self._is_closed:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._write_turn)

    def _write_turn(self) -> None:
        """Writes the changes of one turn of the event loop: at once if that is possible, else in a task."""
        self._is_due = False
        if self._writer is not None or self._is_closed or self._next.changes.is_empty:
            return
        if not self._write_at_once():
            self._writer = asyncio.create_task(self._write())

    def _write_at_once(self) -> bool:
        if not self._store.try_write(self._process.id, self._next.changes):
            return False
        self._next.end()
        self._next = _Group()
        self._note_writable()
        return True

    async def _write(self) -> None:
        try:
            while not self._next.changes.is_empty:
                await asyncio.sleep(GATHERING_SECONDS)
                if self._write_at_once():
                    continue
                group, self._next = self._next, _Group()
                if not await self._write_group(group) and not self._next.changes.is_awaited:
                    return  # the next change or renewal tries again
        finally:
            self._writer = None

    async def _write_group(self, group: _Group) -> bool:
        """Writes a group in the thread.

        Returns:
            Whether it is committed. If not, the changes that no caller waits for are carried on.
        """
        self._committing = group.changes
        try:
            await self._repeat(group)
        except BaseException as error:  # a defect too: no caller waits for ever
            self._next.changes.carry(group.changes)
            group.end(error if isinstance(error, Exception) else self._closed())
            if not isinstance(error, StoreError):
                raise
            return False
        finally:
            self._committing = Changes()
        group.end()
        return True

    async def _repeat(self, group: _Group) -> None:
        wait = _FIRST_WAIT_SECONDS
        while True:
            begun = time.perf_counter()
            try:
                await self._writes(self._store.write, self._process.id, group.changes)
                break
            except StoreError as error:
                LEDGER_FAILURES.add("commit")
                if self._is_writable:
                    logger.error("%s", error)
                self._is_writable = False
                if not error.is_transient or time.monotonic() + wait > group.retry_until:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, _MAX_WAIT_SECONDS)
        LEDGER_SECONDS.observe(time.perf_counter() - begun, "commit")
        self._note_writable()

    def _note_writable(self) -> None:
        if not self._is_writable:
            logger.info("the %s can be written again", self._store.name)
        self._is_writable = True

    async def _record(self, change: Callable[[Changes], object]) -> None:
        try:
            await self._commit(change)
        except StoreError as error:
            raise LedgerUnavailableError(f"a request of a batch cannot be recorded: {error}") from error

    async def _look_up_batch_requests(self, fingerprints: list[str]) -> Mapping[str, BatchRequest]:
        return await self._query(lambda: self._store.batch(lambda batches: batches.find(fingerprints)))

    async def _look_up(self, fingerprints: list[str]) -> Mapping[str, str]:
        return await self._query(lambda: self._store.look_up(fingerprints))

    async def _query(self, query: Callable[[], Result]) -> Result:
        """Returns the result of a query, retried while the database cannot be reached."""
        until = time.monotonic() + RETRY_SECONDS
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                return await self._reads(query)
            except StoreError as error:
                if not error.is_transient or time.monotonic() + wait > until:
                    raise LedgerUnavailableError(str(error)) from error
                logger.warning("retrying: %s", error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _MAX_WAIT_SECONDS)
