"""Spans that cannot be sent are counted, and hold nobody up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from dramaturg.service.telemetry.backlog import BATCH
from dramaturg.service.telemetry.sending import SpanSender
from dramaturg.service.telemetry.spans import Kind, RecordedSpan, Recorder
from tests.support.telemetry import Counts, counted


@pytest.fixture
def counts() -> Iterator[Counts]:
    with counted() as counting:
        yield counting


class Gate:
    """A collector that takes nothing until it is opened, and then answers as told."""

    def __init__(self, answer: Callable[[], bool] = lambda: True) -> None:
        self.asked = threading.Event()
        self.opened = threading.Event()
        self.late = 0
        self.batches: list[int] = []
        self._answer = answer
        self._closed = False

    def send(self, spans: Sequence[RecordedSpan]) -> bool:
        self.late += self._closed
        self.asked.set()
        self.opened.wait(20)
        if self._closed:
            return False
        self.batches.append(len(spans))
        return self._answer()

    def shutdown(self) -> None:
        self._closed = True
        self.opened.set()


def make(sender: SpanSender, count: int) -> None:
    recorder = Recorder(sender.take, 1)
    for _ in range(count):
        recorder.begin("work", Kind.INTERNAL, {}).end()


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_collector_that_hangs_costs_spans_and_no_time(counts: Counts) -> None:
    gate = Gate()
    sender = SpanSender(gate, size=600, flush_seconds=20)
    make(sender, BATCH)
    assert gate.asked.wait(20)
    make(sender, 1000 - BATCH)  # returns, although nothing is taken
    gate.opened.set()
    wait(lambda: counts.now().sum("dramaturg_spans_sent_total") == BATCH)
    make(sender, 500)
    sender.shutdown()
    found = counts.now()
    assert sum(gate.batches) == 600 + 500
    assert found.by("dramaturg_spans_dropped_total", "reason") == {"queue": 400, "collector": 0}
    assert found.sum("dramaturg_spans_sent_total") == 600 + 500


def test_what_the_collector_does_not_take_is_counted(counts: Counts) -> None:
    gate = Gate(lambda: False)
    gate.opened.set()
    sender = SpanSender(gate, size=600, flush_seconds=20)
    make(sender, 10)
    sender.shutdown()
    found = counts.now()
    assert found.by("dramaturg_spans_dropped_total", "reason") == {"queue": 0, "collector": 10}
    assert found.sum("dramaturg_spans_sent_total") == 0


def test_a_batch_that_cannot_be_sent_costs_no_other(counts: Counts) -> None:
    answers = iter([ValueError("cannot be encoded"), None])

    def answer() -> bool:
        if error := next(answers):
            raise error
        return True

    gate = Gate(answer)
    gate.opened.set()
    sender = SpanSender(gate, size=2 * BATCH, flush_seconds=20)
    make(sender, BATCH)
    wait(lambda: counts.now().sum("dramaturg_spans_dropped_total", reason="collector") == BATCH)
    make(sender, BATCH)
    sender.shutdown()
    assert counts.now().sum("dramaturg_spans_sent_total") == BATCH


def test_a_full_batch_is_sent_at_once_and_its_rest_with_the_next(counts: Counts) -> None:
    gate = Gate()
    sender = SpanSender(gate, size=10 * BATCH, flush_seconds=20, delay_seconds=3600)
    make(sender, 2 * BATCH + 3)
    gate.opened.set()
    wait(lambda: counts.now().sum("dramaturg_spans_sent_total") == 2 * BATCH)
    make(sender, BATCH - 3)
    wait(lambda: counts.now().sum("dramaturg_spans_sent_total") == 3 * BATCH)
    make(sender, 1)
    sender.shutdown()
    assert gate.batches == [BATCH, BATCH, BATCH, 1]


def test_few_spans_are_sent_after_the_delay(counts: Counts) -> None:
    gate = Gate()
    gate.opened.set()
    sender = SpanSender(gate, size=2 * BATCH, flush_seconds=20, delay_seconds=0.05)
    for taken, more in ((2, 2), (4, 2), (4 + BATCH + 2, BATCH + 2)):
        make(sender, more)
        wait(lambda: counts.now().sum("dramaturg_spans_sent_total") == taken)  # noqa: B023 # waited for here
    sender.shutdown()


def test_the_end_waits_for_the_collector_no_longer_than_it_may(counts: Counts) -> None:
    gate = Gate()
    sender = SpanSender(gate, size=4 * BATCH, flush_seconds=0.2)
    make(sender, 3 * BATCH + 1)
    begun = time.monotonic()
    sender.shutdown()
    assert time.monotonic() - begun < 10
    make(sender, 1)  # of a call that outlived the sender
    found = counts.now().by("dramaturg_spans_dropped_total", "reason")
    assert found == {"queue": 1, "collector": 3 * BATCH + 1}
    assert not gate.late
