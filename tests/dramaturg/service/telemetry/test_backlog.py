"""What waits to be sent: batches that a collector takes, and no more memory than is meant."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator, Sequence

from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.backlog import BATCH, BATCH_BYTES, MOST_BYTES, Backlog
from dramaturg.service.telemetry.spans import LONGEST_TEXT, Kind, RecordedSpan, Recorder


def span(length: int = 0, character: str = "x") -> RecordedSpan:
    """A span that has ended, with a text of so many characters."""
    ended: list[RecordedSpan] = []
    began = Recorder(ended.append, 1).begin("work", Kind.INTERNAL, {})
    began.set("text", character * length)
    began.end()
    return ended[0]


def filled(*spans: RecordedSpan, size: int = 10 * BATCH) -> Backlog:
    """A backlog with these spans."""
    backlog = Backlog(size)
    for one in spans:
        assert backlog.add(one)
    return backlog


def batches(backlog: Backlog) -> Iterator[Sequence[RecordedSpan]]:
    """All that it has."""
    while batch := backlog.take(rest=True):
        yield batch


def test_spans_come_out_in_whole_batches_and_in_their_order() -> None:
    spans = [span() for _ in range(2 * BATCH + 1)]
    backlog = filled(*spans)
    found = [backlog.take(rest=False), backlog.take(rest=False)]
    assert [len(batch) for batch in found] == [BATCH, BATCH]
    assert not backlog.filled
    assert not backlog.take(rest=False)
    assert [one for batch in [*found, backlog.take(rest=True)] for one in batch] == spans


def test_long_spans_fill_a_batch_sooner() -> None:
    spans = [span(BATCH_BYTES // 10) for _ in range(40)]
    assert not filled(*spans[:9]).filled
    backlog = filled(*spans)
    assert backlog.filled
    found = list(batches(backlog))
    assert [one for batch in found for one in batch] == spans
    assert [len(batch) for batch in found] == [9, 9, 9, 9, 4]


def test_what_is_on_its_way_fills_no_further_batch() -> None:
    backlog = filled(*[span(BATCH_BYTES // 10) for _ in range(12)])
    assert len(backlog.take(rest=False)) == 9
    assert not backlog.filled
    assert not backlog.take(rest=False)


def test_a_span_that_is_longer_than_a_batch_is_one() -> None:
    longest = span(LONGEST_TEXT, "\N{PERFORMING ARTS}")
    assert longest.size > BATCH_BYTES
    spans = [span(), longest, span()]
    assert [list(batch) for batch in batches(filled(*spans))] == [[one] for one in spans]


def test_a_text_is_cut_where_no_collector_would_take_the_span() -> None:
    short, longest, longer = span(LONGEST_TEXT - 1), span(LONGEST_TEXT), span(LONGEST_TEXT + 1)
    assert [len(str(one.attributes["text"])) for one in (short, longest, longer)] == [
        LONGEST_TEXT - 1,
        LONGEST_TEXT,
        LONGEST_TEXT,
    ]
    assert longer.size == longest.size > LONGEST_TEXT


def test_there_is_room_for_so_many_spans_until_they_are_sent() -> None:
    backlog = filled(*[span() for _ in range(600)], size=600)
    assert not backlog.add(span())
    assert len(backlog.take(rest=True)) == BATCH
    assert not backlog.add(span())  # they are on their way, and may come to nothing
    assert len(backlog.take(rest=True)) == 600 - BATCH
    for _ in range(BATCH):
        assert backlog.add(span())
    assert not backlog.add(span())
    assert [len(batch) for batch in batches(backlog)] == [BATCH]
    assert backlog.add(span())
    assert len(backlog.take(rest=True)) == 1
    for _ in range(3):
        assert not backlog.take(rest=False)
    assert [backlog.add(span()) for _ in range(601)] == [True] * 600 + [False]


def test_all_texts_of_a_span_count() -> None:
    ended: list[RecordedSpan] = []
    began = Recorder(ended.append, 1).begin("work", Kind.INTERNAL, {})
    for name in ("question", "answer"):
        began.set(name, "x" * 1000)
    began.end()
    assert 2000 < ended[0].size < 3000


def test_there_is_room_for_so_many_bytes_until_they_are_sent() -> None:
    long = span(LONGEST_TEXT)
    backlog = filled(*[long] * -(-MOST_BYTES // long.size))
    assert not backlog.add(span())
    backlog.take(rest=True)
    assert not backlog.add(span())
    backlog.take(rest=True)
    assert backlog.add(span())
    assert list(batches(backlog))
    assert backlog.add(span())


def test_nothing_comes_into_one_that_is_closed() -> None:
    backlog = filled(span())
    backlog.close()
    assert not backlog.add(span())
    assert [len(batch) for batch in batches(backlog)] == [1]


class Unlucky(RecordedSpan):
    """A span at whose size nobody looks without the garbage collector running."""

    @property
    def size(self) -> int:
        gc.collect()
        return 0

    @size.setter
    def size(self, value: int) -> None:
        del value


def test_a_span_that_the_garbage_collector_ends_is_added_at_any_moment() -> None:
    """A coroutine that was given up ends its span where the collector runs, if need be while one is added."""
    backlog = Backlog(BATCH)
    unlucky = Unlucky(span().context, "work", Kind.INTERNAL, {}, "", remote=False, sink=lambda _: None)

    class GivenUp:
        def __init__(self) -> None:
            self.begun = self.work()
            self.begun.send(None)

        async def work(self) -> None:
            with tracing.spanning("given up"):
                await asyncio.sleep(0)

    def add() -> None:
        GivenUp()
        backlog.add(unlucky)

    def take(ended: RecordedSpan) -> None:
        backlog.add(ended)

    gc.disable()
    tracing.trace_with(Recorder(take, 1))
    try:
        thread = threading.Thread(target=add, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
    finally:
        tracing.trace_with(None)
        gc.enable()
    assert {one.name for one in backlog.take(rest=True)} == {"work", "given up"}
