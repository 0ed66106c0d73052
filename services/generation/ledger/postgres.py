"""A ledger in PostgreSQL, for any number of processes.

What is put stands in the spool of this process (a file; see [spool]) before the caller gets it, and is
written to the database in the background, together with whatever else came meanwhile. So no answer waits for
a commit, and the death of the process loses none: whoever finds the spool adopts it.
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

from services.generation.calls import Purchase
from services.generation.ledger import entries, spool
from services.generation.ledger.base import Ledger, LedgerError, LedgerStatus, LedgerUnavailableError
from services.generation.ledger.batches import Batches
from services.generation.ledger.notes import Notes
from services.generation.ledger.postgres_store import PostgresStore
from services.generation.ledger.processes import Process
from services.generation.ledger.spool import Contents, Kept, Sent, Spool
from services.generation.metrics import LEDGER_FAILURES, LEDGER_SECONDS, LEDGER_UNWRITTEN

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.02
"""How long what is put waits for company on its way to the database."""
LAG_SECONDS = 0.5
"""How old a call under way must be for the database to be told of it. Most are answered before."""
PATIENCE_SECONDS = 30.0
"""How long a question waits for a database that restarts."""
CLOSING_SECONDS = 5.0
"""How long closing waits for it. What is not written then stays in the spool."""
SPOOL_BYTES = 4 << 20
"""After so many bytes the spool is rewritten without what the database has."""

Result = TypeVar("Result")


class PostgresLedger(Ledger):
    """A ledger in PostgreSQL. Use [open]."""

    def __init__(self, store: PostgresStore, folder: Path, process: Process) -> None:
        self._store = store
        self._folder = folder
        self._process = process
        self._spool = Spool(folder, process.id)
        self._numbers = itertools.count(1)
        self._reads: Batches[str, str] = Batches(self._look_up)
        self._unwritten: dict[str, Kept] = {}
        self._notes = Notes()
        self._spooling = True
        self._closing = False
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._writer = asyncio.create_task(self._write())
        LEDGER_UNWRITTEN.watch(lambda: len(self._unwritten))

    @classmethod
    async def open(cls, url: str, spools: Path) -> PostgresLedger:
        """Opens the database and adopts what dead processes left in their spools.

        Args:
            url: The database.
            spools: Where the spools of all processes of this machine lie. A folder of its own is made in it
                for each database.

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
        """The calls kept for the request, marked as cached. Empty: none are kept."""
        unwritten = self._unwritten.get(fingerprint)
        text = unwritten.purchases if unwritten is not None else await self._reads.get(fingerprint)
        return () if text is None else entries.from_text(text)

    async def _look_up(self, fingerprints: list[str]) -> Mapping[str, str]:
        return await _patiently(lambda: self._store.look_up(fingerprints), self._store.place)

    def intend(self, fingerprint: str) -> int:
        """Notes in the spool that a call is about to be sent."""
        number = next(self._numbers)
        sent = Sent(fingerprint, time.time())
        self._notes.add(number, sent)
        self._append(spool.sent_line(number, sent))
        return number

    async def put(self, fingerprint: str, purchases: Sequence[Purchase]) -> None:
        """Keeps the calls: in the spool at once, in the database soon."""
        kept = Kept(time.time(), entries.to_text(purchases))
        intents = entries.intents(purchases)
        self._append(spool.kept_line(fingerprint, kept, intents))
        self._unwritten[fingerprint] = kept
        self._notes.settle(intents)
        self._changed()

    def settle(self, intents: Collection[int]) -> None:
        """Takes notes back."""
        if intents:
            self._append(entries.compact({"settled": list(intents)}))
            self._notes.settle(intents)
            self._changed()

    def abandon(self, intents: Collection[int]) -> None:
        """Notes that nobody waits for these calls any more."""
        if intents:
            self._append(entries.compact({"abandoned": list(intents)}))
            self._notes.abandon(intents)
            self._changed()

    def _changed(self) -> None:
        self._written.clear()
        self._wake.set()

    def _append(self, line: str) -> None:
        try:
            self._spool.append(line)
        except OSError as error:
            if self._spooling:
                logger.error(
                    "the spool cannot be written; what is bought from now on is lost if this process dies "
                    "before the database has it: %s",
                    error,
                )
            self._spooling = False
        else:
            self._spooling = True

    async def _write(self) -> None:
        while not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAG_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            if not self._closing:
                await asyncio.sleep(GATHER_SECONDS)
            await self._write_changes()
        await self._write_changes()  # what came while the last of them were written

    async def _write_changes(self) -> None:
        contents = self._take()
        if contents:
            await self._commit(contents)
            self._trim()
        if not self._has_changes():
            self._written.set()

    def _has_changes(self) -> bool:
        return bool(self._unwritten or self._notes.settled or self._notes.abandoned)

    def _take(self) -> Contents:
        notes = self._notes
        sent = notes.post(time.time() - (0 if self._closing else LAG_SECONDS))
        contents = Contents(dict(self._unwritten), sent, notes.abandoned, notes.settled)
        notes.abandoned, notes.settled = {}, []
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
                if failures % 12 == 0:  # at first, and then about once a minute
                    logger.error("the ledger %s cannot be written: %s", self._store.place, error)
                failures += 1
                await asyncio.sleep(min(5.0, 0.1 * 2**failures))
        LEDGER_SECONDS.observe(time.perf_counter() - begun, "commit")
        if failures:
            logger.info("the ledger %s can be written again", self._store.place)
        for fingerprint, kept in contents.kept.items():
            if self._unwritten.get(fingerprint) is kept:
                del self._unwritten[fingerprint]

    def _trim(self) -> None:
        if self._spool.size > SPOOL_BYTES:
            wanted = Contents(self._unwritten, dict(self._notes.under_way), self._notes.abandoned)
            with suppress(OSError):  # it only grows on
                self._spool.rewrite(wanted)

    async def status(self) -> LedgerStatus:
        """What the ledger holds, this process's latest included where the database answers in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._written.wait()
        return await _patiently(
            lambda: self._store.status(
                self._process,
                under_way=len(self._notes.under_way),
                unwritten=len(self._unwritten),
            ),
            self._store.place,
        )

    async def close(self) -> None:
        """Writes what is left. What the database does not take in time stays in the spool, to be adopted."""
        self._closing = True
        self._wake.set()
        complete = False
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._writer
                await self._store.leave(self._process)
                complete = True
        except Exception as error:  # the spool is left, whatever it is
            logger.error("the ledger %s could not be closed in order: %r", self._store.place, error)
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


async def _patiently(ask: Callable[[], Awaitable[Result]], place: str) -> Result:
    """Asks again while the database cannot be reached, such as in a restart."""
    until = time.monotonic() + PATIENCE_SECONDS
    wait = 0.1
    while True:
        try:
            return await ask()
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if time.monotonic() + wait > until:
                raise LedgerUnavailableError(f"the ledger {place} does not answer: {error}") from error
            logger.warning("the ledger %s does not answer, asking again: %s", place, error)
            await asyncio.sleep(wait)
            wait = min(2.0, wait * 2)
        except psycopg.Error as error:
            raise LedgerUnavailableError(f"the ledger {place} cannot be read: {error}") from error
