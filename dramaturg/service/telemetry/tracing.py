"""Which span is the current one, and how it goes along with calls.

Without a recorder nothing is recorded; what a caller says of its trace is still logged and passed on, so that
a service that does not trace leaves no gap. Nor does a trace that is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from dramaturg.service.telemetry import trace_context
from dramaturg.service.telemetry.spans import Attributes, Kind, Recorder, Span

_NONE: Attributes = {}
_NO_SPAN = Span()


class Ids(NamedTuple):
    """Names a span in hexadecimal digits."""

    trace_id: str
    span_id: str


_recorder: Recorder | None = None
_contents = False
_current: ContextVar[Span] = ContextVar("dramaturg_span", default=_NO_SPAN)


def trace_with(recorder: Recorder | None, *, contents: bool = False) -> None:
    """Makes this process trace, or stop.

    Args:
        recorder: Begins the spans. None: there are none.
        contents: Whether spans may hold prompts and answers.
    """
    global _recorder, _contents
    _recorder, _contents = recorder, contents


def contents() -> bool:
    """Whether spans may hold prompts and answers."""
    return _contents


def enter_call(metadata: Iterable[tuple[str, Any]], name: str, attributes: Attributes) -> Span:
    """Begins the span of a call that is served, under its caller's; it stays current in the call's task."""
    caller = trace_context.read(metadata)
    if _recorder is None:
        span = _NO_SPAN if caller is None else Span(caller)
    else:
        span = _recorder.begin(name, Kind.SERVER, attributes, caller, remote=True)
    _current.set(span)
    return span


def begin_call(name: str, attributes: Attributes) -> tuple[Span, Mapping[str, str]]:
    """Begins the span of a call that is made, under the current one.

    Returns:
        The span, which whoever makes the call ends, and the metadata that carries it.
    """
    span = _begin(name, Kind.CLIENT, attributes)
    return span, {} if span.context is None else span.context.headers()


@contextmanager
def spanning(
    name: str, attributes: Attributes = _NONE, kind: Kind = Kind.INTERNAL, *, root: bool = False
) -> Iterator[Span]:
    """Makes a span within a ``with`` block, current there. An exception marks it failed by its class.

    Args:
        name: What is done, in words of few values.
        attributes: What is known of it.
        kind: What it is of.
        root: Whether it begins a trace of its own.
    """
    span = _begin(name, kind, attributes, root=root)
    token = _current.set(span)
    try:
        yield span
    except BaseException as error:
        span.fail(type(error).__name__)
        raise
    finally:
        # What was given up is closed by whoever finds it, and then there is nothing to go back to.
        with suppress(ValueError):
            _current.reset(token)
        span.end()


def ids() -> Ids | None:
    """The current span; where it is not recorded, what goes along with calls in its place. None: no trace."""
    context = _current.get().context
    return None if context is None else Ids(context.trace_id, context.span_id)


def _begin(name: str, kind: Kind, attributes: Attributes, *, root: bool = False) -> Span:
    context = None if root else _current.get().context
    return Span(context) if _recorder is None else _recorder.begin(name, kind, attributes, context)
