"""A local file with the records that are not yet in the shared store.

Each JSON line is appended by a single write, so that written lines outlive the process. The process that
opens a spool locks it (flock(2)), and the lock ends with the process. A spool that can be locked is orphaned,
and another process can adopt its records.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.generation.records import compact

logger = logging.getLogger(__name__)

_SUFFIX = ".spool"
_FRESH = ".fresh"


@dataclass(frozen=True, slots=True)
class Kept:
    """A completion that is not yet in the store."""

    recorded_at: float
    """Seconds since 1970."""
    purchases: str
    """As [records.to_text] writes them."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A call in flight."""

    fingerprint: str
    sent_at: float
    """Seconds since 1970."""


@dataclass(slots=True)
class Contents:
    """The contents of a spool."""

    kept: dict[str, Kept] = field(default_factory=dict)
    """Completions by the fingerprints of their requests."""
    sent: dict[int, Sent] = field(default_factory=dict)
    """Calls without an answer, by number."""
    abandoned: dict[int, Sent] = field(default_factory=dict)
    """The abandoned calls among them."""
    unstored: dict[int, Sent] = field(default_factory=dict)
    """Answered calls whose answers are not stored, by number."""
    settled: list[int] = field(default_factory=list)
    """Calls that were answered or not sent."""

    def __bool__(self) -> bool:
        return bool(self.kept or self.sent or self.abandoned or self.unstored or self.settled)

    def read(self, record: Mapping[str, Any]) -> None:
        """Applies one record. Raises ValueError, TypeError or KeyError where it is malformed."""
        if "sent" in record:
            self.sent[int(record["sent"])] = Sent(str(record["fingerprint"]), float(record["at"]))
        if "kept" in record:
            purchases = compact(record["purchases"])
            self.kept[str(record["kept"])] = Kept(float(record["at"]), purchases)
        for number in record.get("settled", ()):
            self.settled.append(int(number))
            self.sent.pop(number, None)
            self.abandoned.pop(number, None)
        for name, ended in (("abandoned", self.abandoned), ("unstored", self.unstored)):
            for number in record.get(name, ()):
                sent = self.sent.pop(number, None)
                if sent is not None:
                    ended[number] = sent

    def lines(self) -> Iterator[str]:
        """The records from which [read] restores these contents, without settled calls."""
        for number, sent in (self.sent | self.abandoned | self.unstored).items():
            yield sent_line(number, sent)
        if self.abandoned:
            yield compact({"abandoned": list(self.abandoned)})
        if self.unstored:
            yield compact({"unstored": list(self.unstored)})
        for fingerprint, kept in self.kept.items():
            yield kept_line(fingerprint, kept, ())


def sent_line(number: int, sent: Sent) -> str:
    """The record of a call that is about to be sent."""
    return f'{{"sent":{number},"fingerprint":"{sent.fingerprint}","at":{sent.sent_at!r}}}'


def kept_line(fingerprint: str, kept: Kept, settled: Collection[int]) -> str:
    """The record of a completion, with the calls that it settles."""
    numbers = compact(list(settled))
    return (
        f'{{"kept":"{fingerprint}","at":{kept.recorded_at!r},"settled":{numbers},'
        f'"purchases":{kept.purchases}}}'
    )


class Spool:
    """The spool of this process: ``<folder>/<process>.spool``."""

    def __init__(self, folder: Path, process: str) -> None:
        """Creates and locks the file. Raises OSError where that fails."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{process}{_SUFFIX}"
        fresh = self.path.with_suffix(_FRESH)
        self._descriptor = _create(fresh)
        # The file is locked before it gets its final name, so that no process adopts it.
        fresh.replace(self.path)
        self.size = 0
        """The bytes appended since the file was last rewritten."""

    def append(self, line: str) -> None:
        """Appends a record. Raises OSError where the write fails; the file is then unchanged."""
        data = f"{line}\n".encode()
        _write_whole(self._descriptor, data)
        self.size += len(data)

    def rewrite(self, contents: Contents) -> None:
        """Atomically replaces the file by one that holds only ``contents``.

        Raises:
            OSError: The write fails. The file is then unchanged.
        """
        if not contents:
            # A full disk has no space for another file.
            os.ftruncate(self._descriptor, 0)
            self.size = 0
            return
        fresh = self.path.with_suffix(_FRESH)
        descriptor = _create(fresh)
        try:
            data = "".join(f"{line}\n" for line in contents.lines()).encode()
            _write_whole(descriptor, data)
            fresh.replace(self.path)
        except OSError:
            os.close(descriptor)
            fresh.unlink(missing_ok=True)
            raise
        os.close(self._descriptor)
        self._descriptor, self.size = descriptor, 0

    def close(self, *, remove: bool) -> None:
        """Unlocks the file, and deletes it if ``remove`` is set."""
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


@contextmanager
def orphans(folder: Path) -> Iterator[list[tuple[str, Contents]]]:
    """Yields the spools of dead processes: the ids of the processes and the contents.

    The spools are locked within the context, so that only one process adopts each. They are deleted at the
    end unless the context ends with an exception.
    """
    locked: list[tuple[Path, int]] = []
    try:
        found: list[tuple[str, Contents]] = []
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            descriptor = _lock(path)
            if descriptor is not None:
                locked.append((path, descriptor))
                found.append((path.stem, _read(path)))
        yield found
        for path, _ in locked:
            path.unlink(missing_ok=True)
            path.with_suffix(_FRESH).unlink(missing_ok=True)
    finally:
        for _, descriptor in locked:
            os.close(descriptor)


def _write_whole(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    if written < len(data):
        # A partial record would also make the next one unreadable.
        os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_END) - written)
        raise OSError(f"only {written} of {len(data)} bytes were written")


def _create(path: Path) -> int:
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _lock(path: Path) -> int | None:
    """Locks an orphan. None: its process is alive, or another process locked it."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been replaced or adopted between opening and locking.
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
    return None


def _read(path: Path) -> Contents:
    contents = Contents()
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            try:
                contents.read(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                # The process died during the write, so the record was never used.
                logger.warning("%s, line %d cannot be read: %r", path, number, error)
    return contents
