"""Hands spans over in batches, from a thread of its own.

Whoever ends a span never waits for the collector: what the backlog cannot hold is dropped and counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Protocol

from dramaturg.service.telemetry.backlog import Backlog
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
        self._flush_seconds = flush_seconds
        self._delay_seconds = delay_seconds
        self._backlog = Backlog(size)
        self._closing = False
        # Not an event: whatever ends a span may be the garbage collector, at any moment in any thread, and to
        # put something into such a queue is safe even there.
        self._due: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)
        self._thread.start()

    def take(self, span: RecordedSpan) -> None:
        """Queues a span, or drops it."""
        if not self._backlog.add(span):
            DROPPED.add("queue")
        elif self._backlog.filled and self._due.empty():
            self._due.put(None)

    def shutdown(self) -> None:
        """Sends what is left, as far as it can be sent in time."""
        self._backlog.close()
        self._closing = True
        self._due.put(None)
        self._thread.join(self._flush_seconds)
        # This fails the batch that is still being sent, if there is one, and so ends the thread.
        self._connected = False
        self._exporter.shutdown()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing:
            # What is left of a batch that was filled waits for the next one.
            self._send(rest=not self._filled())
        self._send(rest=True)

    def _filled(self) -> bool:
        """Waits until a batch is filled; returns whether one was, and not only the delay is over."""
        try:
            self._due.get(timeout=self._delay_seconds)
        except Empty:
            return False
        return True

    def _send(self, *, rest: bool) -> None:
        """Sends the batches that wait."""
        while batch := self._backlog.take(rest=rest):
            if self._connected and self._taken(batch):
                SENT.add(amount=len(batch))
            else:
                DROPPED.add("collector", amount=len(batch))

    def _taken(self, batch: Sequence[RecordedSpan]) -> bool:
        try:
            return self._exporter.send(batch)
        except Exception:
            # It costs the batch, and not the thread with all that come later.
            logger.exception("spans cannot be sent")
            return False
