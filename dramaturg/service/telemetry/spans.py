"""Spans, and what records them.

They are recorded in a shape of our own, and encoded where they are sent: a service has about two for every
call, and OpenTelemetry's SDK takes several times as long for one (``bench/spans.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from random import Random
from sys import getsizeof

from dramaturg.service.telemetry.trace_context import TraceContext

LONGEST_TEXT = 256 << 10
"""Of a text that is set, in characters. The rest is cut off, so that a collector takes any span."""
# Texts up to so many characters are not counted: most are short, and to count costs time.
_SHORT = 200

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value]


class Kind(IntEnum):
    """What a span is of; the numbers are OTLP's (``Span.SpanKind``)."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class Span:
    """Something that takes time. This one is not recorded: all it does is to name the trace that it is in.

    Attributes:
        context: Its name, or that of the span around it. None: there is no trace.
    """

    __slots__ = ("context",)

    def __init__(self, context: TraceContext | None = None) -> None:
        self.context = context

    @property
    def recording(self) -> bool:
        """Whether what is set is kept: for what costs more to find out than to set."""
        return False

    def set(self, name: str, value: Value) -> None:
        """Sets an attribute."""

    def fail(self, error_type: str) -> None:
        """Says by what it failed, in a word of few values; the first word stands.

        Texts of errors have no place here: they may quote what is judged.
        """

    def end(self) -> None:
        """Ends it. What is set later is lost."""


class RecordedSpan(Span):
    """A span that is recorded, from now until it is ended.

    Args:
        context: Its name.
        name: What is done, in words of few values.
        kind: What it is of.
        attributes: What is known of it.
        parent_id: The span around it. Empty: it begins a trace.
        remote: Whether the span around it is another process's.
        sink: Takes it when it is ended.

    Attributes:
        began: When it began, in nanoseconds since the epoch.
        ended: When it ended, in the same.
        failed: Whether it failed.
        size: How many bytes its texts take, where they are not short.
    """

    __slots__ = (
        "_sink",
        "attributes",
        "began",
        "ended",
        "failed",
        "kind",
        "name",
        "parent_id",
        "remote",
        "size",
    )

    context: TraceContext

    def __init__(
        self,
        context: TraceContext,
        name: str,
        kind: Kind,
        attributes: Attributes,
        parent_id: str,
        *,
        remote: bool,
        sink: Callable[[RecordedSpan], None],
    ) -> None:
        self.context = context
        self.name = name
        self.kind = kind
        self.attributes = dict(attributes)
        self.parent_id = parent_id
        self.remote = remote
        self.failed = False
        self.size = 0
        self._sink: Callable[[RecordedSpan], None] | None = sink
        self.began = self.ended = time.time_ns()

    @property
    def recording(self) -> bool:
        """Whether what is set is kept."""
        return self._sink is not None

    def set(self, name: str, value: Value) -> None:
        """Sets an attribute."""
        if self._sink is not None:
            if isinstance(value, str) and len(value) > _SHORT:
                value = value[:LONGEST_TEXT]
                self.size += getsizeof(value)
            self.attributes[name] = value

    def fail(self, error_type: str) -> None:
        """Says by what it failed."""
        if self._sink is not None and not self.failed:
            self.failed = True
            self.attributes["error.type"] = error_type

    def end(self) -> None:
        """Ends it, and hands it over."""
        sink, self._sink = self._sink, None
        if sink is not None:
            self.ended = time.time_ns()
            sink(self)


class Recorder:
    """Begins spans.

    Args:
        sink: Takes those that are recorded, when they end. Must not wait.
        sample_ratio: The share of the traces begun here that are recorded, from 0 to 1. The spans of others'
            traces are recorded as those wish.
    """

    def __init__(self, sink: Callable[[RecordedSpan], None], sample_ratio: float) -> None:
        self._sink = sink
        self._kept_below = round(sample_ratio * 2**64)
        # One of its own: a program that seeds the module's would get the same ids every time.
        self._random_bits = Random().getrandbits  # noqa: S311 # names, not secrets

    def begin(
        self,
        name: str,
        kind: Kind,
        attributes: Attributes,
        parent: TraceContext | None = None,
        *,
        remote: bool = False,
    ) -> Span:
        """Begins a span.

        Args:
            name: What is done, in words of few values.
            kind: What it is of.
            attributes: What is known of it.
            parent: The span around it. None: it begins a trace.
            remote: Whether that is another process's.
        """
        if parent is None:
            context, parent_id, remote = self._begin_trace(), "", False
        elif parent.sampled:
            context, parent_id = parent._replace(span_id=self._span_id()), parent.span_id
        else:
            context, parent_id = parent, ""
        if not context.sampled:
            return Span(context)
        return RecordedSpan(context, name, kind, attributes, parent_id, remote=remote, sink=self._sink)

    def _begin_trace(self) -> TraceContext:
        trace = self._random_bits(128) or 1
        # The lower half decides, as it does in OpenTelemetry's sampler, so that others' agree with it.
        sampled = trace % 2**64 < self._kept_below
        return TraceContext(f"{trace:032x}", self._span_id(), f"{sampled:02x}")

    def _span_id(self) -> str:
        return f"{self._random_bits(64) or 1:016x}"
