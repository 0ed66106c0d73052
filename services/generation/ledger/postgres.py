"""A ledger in PostgreSQL, for any number of processes.

A completion is appended to the spool of this process (a file; see [spool]) before the caller receives it, and
is written to the database in the background, in groups. No answer waits for a commit, and no completion is
lost when the process dies: another process adopts the spool.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psycopg

from services.generation import records
from services.generation.calls import Purchase
from services.generation.ledger import spool
from services.generation.ledger.base import Ledger, LedgerError, LedgerStatus, LedgerUnavailableError
from services.generation.ledger.batched_lookup import BatchedLookup
from services.generation.ledger.pending_calls import PendingCalls
from services.generation.ledger.postgres_store import PostgresStore
from services.generation.ledger.processes import Process
from services.generation.ledger.spool import Contents, Kept, Sent, Spool
from services.generation.metrics import LEDGER_FAILURES, LEDGER_SECONDS, LEDGER_UNWRITTEN

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.02
"""How long a write waits for others of the same commit."""
LAG_SECONDS = 0.5
"""The age at which a call in flight is written to the database. Most calls are answered earlier."""
RETRY_SECONDS = 30.0
"""How long a query is retried while the database cannot be reached."""
COMMIT_SECONDS = 5.0
"""How long a completion that the spool does not take waits for the database."""
CLOSING_SECONDS = 5.0
"""How long closing waits for the last write. After that the completions stay in the spool."""
SPOOL_BYTES = 4 << 20
"""The size above which the spool is rewritten without the records that the database has."""

Result = TypeVar("Result")


class PostgresLedger(Ledger):
    """A ledger in PostgreSQL. Use [open]."""

    def __init__(self, store: PostgresStore, folder: Path, process: Process) -> None:
        self._store = store
        self._folder = folder
        self._process = process
        self._spool = Spool(folder, process.id)
        self._numbers = itertools.count(1)
        self._reads: BatchedLookup[str, str] = BatchedLookup(self._look_up)
        self._unwritten: dict[str, Kept] = {}
        self._pending = PendingCalls()
        self._spooling = True
        self._closing = False
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._commits = asyncio.Event()
        """Set, and replaced, with the next commit."""
        self._writer = asyncio.create_task(self._write())
        LEDGER_UNWRITTEN.watch(lambda: len(self._unwritten))

    @classmethod
    async def open(cls, url: str, spools: Path) -> PostgresLedger:
        """Opens the database and adopts the spools of dead processes.

        Args:
            url: The database.
            spools: The folder of the spools of all processes of this machine. Each database has its own
                subfolder.

        Raises:
            LedgerError: The database or the folder cannot be used.
        """
        store = PostgresStore(url)
        await store.open()
        folder, process = spools / store.key, Process.this()
        try:
            await store.renew(process)
            await _adopt_orphans(store, folder)
            return cls(store, folder, process)
        except (psycopg.Error, OSError) as error:
            await store.close()
            raise LedgerError(f"the ledger {store.place}, spool {folder}, cannot be used: {error}") from error

    async def beat(self) -> None:
        """Renews this process's lease, and adopts the spools of dead processes of this machine."""
        await self._store.renew(self._process)
        await _adopt_orphans(self._store, self._folder)

    async def get(self, fingerprint: str) -> tuple[Purchase, ...]:
        """Returns the calls stored for the request, marked as cached. Empty: none are stored."""
        unwritten = self._unwritten.get(fingerprint)
        text = unwritten.purchases if unwritten is not None else await self._reads.get(fingerprint)
        return () if text is None else records.from_text(text)

    async def _look_up(self, fingerprints: list[str]) -> Mapping[str, str]:
        return await _with_retries(lambda: self._store.look_up(fingerprints), self._store.place)

    async def record_call(self, fingerprint: str) -> int:
        """Records the call in the spool. Raises LedgerUnavailableError where the spool cannot be written."""
        number = next(self._numbers)
        sent = Sent(fingerprint, time.time())
        error = self._append(spool.sent_line(number, sent))
        if error is not None:
            raise LedgerUnavailableError(
                f"the spool {self._folder} cannot be written, so no completions are bought: {error}"
            ) from error
        self._pending.add(number, sent)
        return number

    async def put(self, fingerprint: str, purchases: Sequence[Purchase]) -> None:
        """Stores the calls in the spool, and in the background in the database.

        Where the spool cannot be written, the calls wait for the database, for ``COMMIT_SECONDS``. Afterwards
        they are lost if the process ends before the database has them.

        Raises:
            OSError: Neither was possible.
        """
        kept = Kept(time.time(), records.to_text(purchases))
        call_numbers = records.call_numbers(purchases, fingerprint)
        error = self._append(spool.kept_line(fingerprint, kept, call_numbers))
        self._unwritten[fingerprint] = kept
        self._pending.settle(call_numbers)
        self._changed()
        if error is not None:
            await self._committed(fingerprint, kept, error)

    async def _committed(self, fingerprint: str, kept: Kept, error: OSError) -> None:
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                while self._unwritten.get(fingerprint) is kept:
                    await self._commits.wait()
        except TimeoutError:
            raise OSError(
                f"a completion is neither stored in the spool {self._folder} ({error}) nor, within "
                f"{COMMIT_SECONDS:g} s, in the ledger {self._store.place}"
            ) from error

    def settle(self, call_numbers: Collection[int]) -> None:
        if call_numbers:
            self._append(records.compact({"settled": list(call_numbers)}))
            self._pending.settle(call_numbers)
            self._changed()

    def abandon(self, call_numbers: Collection[int]) -> None:
        if call_numbers:
            self._append(records.compact({"abandoned": list(call_numbers)}))
            self._pending.abandon(call_numbers)
            self._changed()

    def mark_unstored(self, call_numbers: Collection[int]) -> None:
        if call_numbers:
            self._append(records.compact({"unstored": list(call_numbers)}))
            self._pending.mark_unstored(call_numbers)
            self._changed()

    def _changed(self) -> None:
        self._written.clear()
        self._wake.set()

    def _append(self, line: str) -> OSError | None:
        try:
            self._spool.append(line)
        except OSError as error:
            if self._spooling:
                LEDGER_FAILURES.add("record")
                logger.error("the spool %s cannot be written: %s", self._folder, error)
            self._spooling = False
            return error
        self._spooling = True
        return None

    async def _write(self) -> None:
        while not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAG_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            if not self._closing:
                await asyncio.sleep(GATHER_SECONDS)
            await self._write_changes()
        await self._write_changes()  # changes made during the last write

    async def _write_changes(self) -> None:
        contents = self._take()
        if contents:
            await self._commit(contents)
        self._trim()
        if not self._has_changes():
            self._written.set()

    def _has_changes(self) -> bool:
        pending = self._pending
        return bool(self._unwritten or pending.settled or pending.abandoned or pending.unstored)

    def _take(self) -> Contents:
        pending = self._pending
        sent = pending.post(time.time() - (0 if self._closing else LAG_SECONDS))
        contents = Contents(dict(self._unwritten), sent, pending.abandoned, pending.unstored, pending.settled)
        pending.abandoned, pending.unstored, pending.settled = {}, {}, []
        return contents

    async def _commit(self, contents: Contents) -> None:
        failures = 0
        while True:
            begun = time.perf_counter()
            try:
                await self._store.write(self._process.id, contents)
                break
            except psycopg.Error as error:
                LEDGER_FAILURES.add("commit")
                if failures % 12 == 0:  # the first failure, then about once a minute
                    logger.error("the ledger %s cannot be written: %s", self._store.place, error)
                failures += 1
                await asyncio.sleep(min(5.0, 0.1 * 2**failures))
        LEDGER_SECONDS.observe(time.perf_counter() - begun, "commit")
        if failures:
            logger.info("the ledger %s can be written again", self._store.place)
        for fingerprint, kept in contents.kept.items():
            if self._unwritten.get(fingerprint) is kept:
                del self._unwritten[fingerprint]
        self._commits.set()
        self._commits = asyncio.Event()

    def _trim(self) -> None:
        # On a full disk the spool itself may be what fills it.
        if self._spool.size > (SPOOL_BYTES if self._spooling else 0):
            pending = self._pending
            wanted = Contents(self._unwritten, dict(pending.under_way), pending.abandoned, pending.unstored)
            with suppress(OSError):  # the file keeps growing
                self._spool.rewrite(wanted)

    async def status(self) -> LedgerStatus:
        """Counts completions and calls, with this process's latest where the database answers in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._written.wait()
        return await _with_retries(
            lambda: self._store.status(
                self._process,
                under_way=len(self._pending.under_way),
                unwritten=len(self._unwritten),
            ),
            self._store.place,
        )

    async def close(self) -> None:
        """Writes the remaining changes. Those that miss the time limit stay in the spool, to be adopted."""
        self._closing = True
        self._wake.set()
        complete = False
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._writer
                await self._store.leave(self._process)
                complete = True
        except Exception as error:  # any error: the spool is kept
            logger.error("the ledger %s could not be closed cleanly: %r", self._store.place, error)
        self._spool.close(remove=complete)
        await self._reads.close()
        await self._store.close()


async def _adopt_orphans(store: PostgresStore, folder: Path) -> None:
    with spool.orphans(folder) as found:
        for process, contents in found:
            if contents:
                await store.write(process, contents)
                logger.info(
                    "adopted the spool of a dead process: %d completions; %d calls may be paid twice",
                    len(contents.kept),
                    len(contents.sent) + len(contents.abandoned),
                )


async def _with_retries(ask: Callable[[], Awaitable[Result]], place: str) -> Result:
    """Retries a query while the database cannot be reached, for example during a restart."""
    until = time.monotonic() + RETRY_SECONDS
    wait = 0.1
    while True:
        try:
            return await ask()
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if time.monotonic() + wait > until:
                raise LedgerUnavailableError(f"the ledger {place} does not answer: {error}") from error
            logger.warning("the ledger %s does not answer; retrying: %s", place, error)
            await asyncio.sleep(wait)
            wait = min(2.0, wait * 2)
        except psycopg.Error as error:
            raise LedgerUnavailableError(f"the ledger {place} cannot be read: {error}") from error
