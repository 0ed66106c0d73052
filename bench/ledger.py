"""What a durable write of the ledger costs, beside a bare transaction of the driver.

Each caller records a call, stores its answer of two kilobytes and starts again. A write is either of both; it
returns after its commit. The bare transactions write the same rows one after another. PostgreSQL commits to
disk, as it does in production.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg

from services.generation.calls import Answer, Purchase
from services.generation.ledger import Ledger, open_ledger
from tests.support.postgres import run_postgres

TEXT = "word " * 400
CALLERS = (1, 64)
SECONDS = 4.0


@dataclass
class Row:
    """The cost of writes."""

    store: str
    writer: str
    milliseconds: float
    """The median time of a write."""
    slowest: float
    """The 99th percentile of the same."""
    per_second: float
    processor: float
    """Milliseconds of processor time of this process, per write."""


class Clock:
    """Times writes until the measurement ends."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._processor = time.process_time()
        self._times: list[float] = []

    @property
    def runs(self) -> bool:
        """Whether the measurement goes on."""
        return time.perf_counter() < self._begun + SECONDS

    @contextmanager
    def write(self) -> Iterator[None]:
        """Times one write."""
        begun = time.perf_counter()
        yield
        self._times.append(time.perf_counter() - begun)

    def row(self, store: str, writer: str) -> Row:
        """The cost of the writes."""
        seconds, count = time.perf_counter() - self._begun, len(self._times)
        return Row(
            store,
            writer,
            1000 * statistics.median(self._times),
            1000 * statistics.quantiles(self._times, n=100)[-1],
            count / seconds,
            1000 * (time.process_time() - self._processor) / count,
        )


async def call(ledger: Ledger, caller: int, clock: Clock) -> None:
    """One caller."""
    number = 0
    while clock.runs:
        fingerprint = f"{caller}/{number}"
        with clock.write():
            call_number = await ledger.record_call(fingerprint)
        with clock.write():
            answer = Answer(TEXT, call_number=call_number)
            await ledger.put(fingerprint, [Purchase(fingerprint, "p", "m", answer)])
        number += 1


async def measure(url: str, store: str, callers: int) -> Row:
    """The cost of writes by the ledger."""
    async with open_ledger(url) as ledger:
        clock = Clock()
        await asyncio.gather(*(call(ledger, caller, clock) for caller in range(callers)))
        return clock.row(store, f"ledger, {callers} at once")


def bare(execute: Callable[[str, tuple[object, ...]], object], store: str, mark: str) -> Row:
    """The cost of the same rows in transactions of one statement."""
    execute("CREATE TABLE bare_calls (number integer PRIMARY KEY, fingerprint text)", ())
    execute("CREATE TABLE bare_completions (fingerprint text PRIMARY KEY, purchases text)", ())
    clock, number = Clock(), 0
    while clock.runs:
        number += 1
        with clock.write():
            execute(f"INSERT INTO bare_calls VALUES ({mark}, {mark})", (number, str(number)))
        with clock.write():
            execute(f"INSERT INTO bare_completions VALUES ({mark}, {mark})", (str(number), TEXT))
    return clock.row(store, "bare transactions")


def rows() -> Iterator[Row]:
    """All measurements, each when it is done."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        connection = sqlite3.connect(path / "bare.sqlite3", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        yield bare(connection.execute, "SQLite", "?")
        connection.close()
        for callers in CALLERS:
            url = f"sqlite:///{path / f'{callers}.sqlite3'}"
            yield asyncio.run(measure(url, "SQLite", callers))
    with run_postgres(durable=True) as server:
        with psycopg.connect(server.create_database(), autocommit=True) as database:
            yield bare(lambda query, values: database.execute(query.encode(), values), "PostgreSQL", "%s")
        for callers in CALLERS:
            yield asyncio.run(measure(server.create_database(), "PostgreSQL", callers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each row")
    as_json = parser.parse_args().json
    if not as_json:
        print(f"{'store':<11}{'writer':<22}{'median ms':>11}{'p99 ms':>9}{'writes/s':>10}{'CPU ms':>8}")
    for row in rows():
        if as_json:
            print(json.dumps(asdict(row)))
        else:
            print(
                f"{row.store:<11}{row.writer:<22}{row.milliseconds:>11.2f}{row.slowest:>9.1f}"
                f"{row.per_second:>10.0f}{row.processor:>8.2f}"
            )


if __name__ == "__main__":
    main()
