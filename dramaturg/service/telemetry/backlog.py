"""Spans that wait to be sent, no more of them than a process can spare the memory for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, islice

from dramaturg.service.telemetry.spans import RecordedSpan

BATCH = 512
"""The most spans of a batch."""
BATCH_BYTES = 1 << 20
"""The most bytes of a batch, as far as it has more than one span. Encoded they may be twice as many, with all
that a span has besides, and collectors refuse a message of more than 4 MiB.
"""
MOST_BYTES = 64 << 20
"""How many bytes may wait or be on their way. Only spans with prompts and answers come to it."""


class Backlog:
    """Spans that have ended and are not sent. Any thread may add some; one takes them out.

    Args:
        size: The most spans that may wait or be on their way.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: deque[RecordedSpan] = deque()
        self._count = self._bytes = 0
        """Of all that wait or are on their way."""
        self._batch_count = self._batch_bytes = 0
        """Of those on their way."""
        self._closed = False
        # The garbage collector may run while it is held, and end a span that was given up.
        self._lock = threading.RLock()

    def add(self, span: RecordedSpan) -> bool:
        """Adds a span; returns whether there is room for it."""
        with self._lock:
            if self._closed or self._count >= self._size or self._bytes >= MOST_BYTES:
                return False
            self._count += 1
            self._bytes += span.size
            self._waiting.append(span)
            return True

    @property
    def filled(self) -> bool:
        """Whether a whole batch waits."""
        return len(self._waiting) >= BATCH or self._bytes - self._batch_bytes >= BATCH_BYTES

    def take(self, *, rest: bool) -> Sequence[RecordedSpan]:
        """Takes a batch out, which is on its way until the next one is asked for.

        Args:
            rest: Whether one that is not whole is wanted too.

        Returns:
            The spans that have waited longest; none where there is no such batch.
        """
        with self._lock:
            self._count -= self._batch_count
            self._bytes -= self._batch_bytes
            self._batch_count = self._batch_bytes = 0
            if not (rest or self.filled):
                return ()
            batch = self._oldest()
            self._batch_count = len(batch)
            self._batch_bytes = sum(span.size for span in batch) if self._bytes else 0
            return batch

    def _oldest(self) -> Sequence[RecordedSpan]:
        waiting, count = self._waiting, min(len(self._waiting), BATCH)
        if self._bytes > BATCH_BYTES:
            sums = accumulate(span.size for span in islice(waiting, count))
            count = min(count, max(1, sum(size <= BATCH_BYTES for size in sums)))
        return [waiting.popleft() for _ in range(count)]

    def close(self) -> None:
        """Has room for nothing more."""
        with self._lock:
            self._closed = True
