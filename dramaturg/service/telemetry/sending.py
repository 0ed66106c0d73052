"""Hands spans over in batches, from a thread of its own.

Whoever ends a span never waits for the collector: what the queue cannot hold is dropped and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from dramaturg.service.telemetry.instruments import Counter
from dramaturg.service.telemetry.spans import RecordedSpan

logger = logging.getLogger(__name__)

SENT = Counter("dramaturg_spans_sent_total", "Spans that the collector took.")
DROPPED = Counter(
    "dramaturg_spans_dropped_total",
    'Spans that were lost: the queue was full ("queue"), or the collector did not take them ("collector").',
    ("reason",),
    shown=(("queue",), ("collector",)),
)

BATCH = 512
"""The most spans that are sent at once; so many are sent without delay."""


class Exporter(Protocol):
    """Sends batches of spans, one at a time."""

    def send(self, spans: Sequence[RecordedSpan]) -> bool:
        """Sends a batch, and says whether it was taken. Waits for that."""
        ...

    def shutdown(self) -> None:
        """Ends the batch that is being sent, and closes the connection."""
        ...


class SpanSender:
    """Sends spans that have ended.

    Args:
        exporter: Sends batches.
        size: The most spans that may wait or be on their way. Further ones are dropped.
        flush_seconds: How long a shutdown may take to send what is left. The rest is dropped.
        delay_seconds: How long a span waits for a batch to fill.
    """

    def __init__(
        self, exporter: Exporter, *, size: int, flush_seconds: float, delay_seconds: float = 5.0
    ) -> None:
        self._exporter = exporter
        self._connected = True
        self._size = size
        self._flush_seconds = flush_seconds
        self._delay_seconds = delay_seconds
        self._waiting: deque[RecordedSpan] = deque()
        self._sending = 0
        self._closing = False
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)
        self._thread.start()

    def take(self, span: RecordedSpan) -> None:
        """Queues a span, or drops it."""
        with self._lock:
            full = self._closing or len(self._waiting) + self._sending >= self._size
            if not full:
                self._waiting.append(span)
            due = len(self._waiting) == BATCH
        if full:
            DROPPED.add("queue")
        elif due:
            self._due.set()

    def shutdown(self) -> None:
        """Sends what is left, as far as it can be sent in time."""
        with self._lock:
            self._closing = True
        self._due.set()
        self._thread.join(self._flush_seconds)
        # This fails the batch that is still being sent, if there is one, and so ends the thread.
        self._connected = False
        self._exporter.shutdown()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing:
            filled = self._due.wait(self._delay_seconds)
            self._due.clear()
            # The rest of a batch that was filled waits for the next one.
            self._send(BATCH if filled else 1)
        self._send(1)

    def _send(self, least: int) -> None:
        """Sends batches while so many spans wait."""
        while batch := self._next(least):
            taken = self._connected and self._taken(batch)
            if taken:
                SENT.add(amount=len(batch))
            else:
                DROPPED.add("collector", amount=len(batch))
            with self._lock:
                self._sending = 0

    def _next(self, least: int) -> Sequence[RecordedSpan]:
        with self._lock:
            if len(self._waiting) < least:
                return ()
            self._sending = min(len(self._waiting), BATCH)
            return [self._waiting.popleft() for _ in range(self._sending)]

    def _taken(self, batch: Sequence[RecordedSpan]) -> bool:
        try:
            return self._exporter.send(batch)
        except Exception:
            # It costs the batch, and not the thread with all that come later.
            logger.exception("spans cannot be sent")
            return False
