"""Logs as JSON, one object a line, on standard error or in a file.

The records of all loggers pass the formatters of this module, which remove credentials
(``redaction.without_credentials``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from dramaturg.service.context import current
from dramaturg.service.redaction import without_credentials
from dramaturg.service.telemetry import tracing

# Made once: a call of json.dumps with options makes one each time.
_encode = json.JSONEncoder(ensure_ascii=False).encode

_SHORT = 200
FILE_BYTES = 10 << 20
"""The most bytes of a log file; a larger one is renamed, and one such file is kept."""
REFUSALS_A_SECOND = 10
"""The most records a second of each kind that callers without an identity cause (``RateLimit``)."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object.

    Members: the time (UTC), level, logger, message, the request id, the ids of the trace and of the span, and
    the fields of ``extra``.

    ``logger.info("call", extra={"fields": {"seconds": 0.2}})`` adds the member ``seconds``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object in one line."""
        request, span = current(), tracing.ids()
        members: dict[str, object] = {}
        if request is not None:
            members["request_id"] = request.request_id
        if span is not None:
            members["trace_id"], members["span_id"] = span
        members |= getattr(record, "fields", {})
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        line = f'{{"time": "{_time(record.created)}", '
        line += _head(record.levelname, record.name, _message(record))
        if members:
            values = [
                _text(value) if type(value) is str and len(value) <= _SHORT else _json(value)
                for value in members.values()
            ]
            line += _form(*members) % tuple(values)
        return line + "}"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        # logging would print the arguments to standard error in place of the record.
        return f"{record.msg} (with arguments that do not fit)"


def _redacted(value: Any) -> Any:
    """A value whose texts have no credentials."""
    match value:
        case str():
            return without_credentials(value)
        case None | bool() | int() | float():
            return value
        case dict():
            return {_redacted(str(name)): _redacted(one) for name, one in value.items()}
        case list() | tuple():
            return [_redacted(one) for one in value]
    return _redacted(str(value))


# Methods, codes and peers recur.
@lru_cache(maxsize=1024)
def _text(text: str) -> str:
    return encode_basestring(without_credentials(text))


def _time(seconds: float) -> str:
    fraction, second = math.modf(seconds)
    over, microseconds = divmod(round(fraction * 1e6), 1_000_000)
    return f"{_second(int(second) + over)}.{microseconds // 1000:03d}+00:00"


@lru_cache(maxsize=8)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=256)
def _head(level: str, logger: str, message: str) -> str:
    # Most records say what others said before them.
    return _encode({"level": level, "logger": logger, "message": without_credentials(message)})[1:-1]


@lru_cache(maxsize=256)
def _form(*names: str) -> str:
    """The members of an object, to be filled with their values."""
    return "".join(f", {encode_basestring(name)}: ".replace("%", "%%") + "%s" for name in names)


def _json(value: object) -> str:
    # For a number the encoder does a dozen things besides.
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return _encode(_redacted(value))


def write(logger: logging.Logger, level: int, message: str, fields: Mapping[str, object]) -> None:
    """Logs a line of every call.

    It does not look up the caller's place in the code, which costs as much as the rest.

    Args:
        logger: The logger.
        level: The level.
        message: The event, one of few texts.
        fields: Its fields.
    """
    if logger.isEnabledFor(level):
        alike, now = _alike(logger.name, level, message, threading.get_ident()), time.time()
        known = alike.copy()
        known["created"], known["msecs"] = now, now % 1 * 1000 // 1
        known["relativeCreated"] += (now - alike["created"]) * 1000
        known["fields"] = fields
        record = logging.LogRecord.__new__(logging.LogRecord)
        record.__dict__ = known
        logger.handle(record)


@lru_cache(maxsize=64)
def _alike(logger: str, level: int, message: str, thread: int) -> dict[str, Any]:
    """The members that the records of a thread share; they are costly to find."""
    del thread
    return {**vars(logging.LogRecord(logger, level, "", 0, message, None, None)), "taskName": None}


class RateLimit(logging.Filter):
    """Passes ``REFUSALS_A_SECOND`` records of a logger; a record at the end of the second counts the others.

    It limits what callers without an identity cause, so that they cannot fill the log.

    Args:
        logger: The logger, which gets the filter.
        limited: Whether a record is limited. None: each is.
    """

    def __init__(
        self, logger: logging.Logger, limited: Callable[[logging.LogRecord], bool] | None = None
    ) -> None:
        super().__init__()
        self._logger = logger
        self._limited = limited
        self._lock = threading.Lock()
        self._end = 0.0
        self._passed = self._dropped = 0
        logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        if hasattr(record, "counts_dropped") or not (self._limited is None or self._limited(record)):
            return True
        with self._lock:
            now = time.monotonic()
            dropped = self._begin(now) if now >= self._end else 0
            passes = self._passed < REFUSALS_A_SECOND
            self._passed += passes
            self._dropped += not passes
            first = self._dropped == 1 and not passes
        self._report(dropped)
        if first:
            with suppress(RuntimeError):  # without a loop the next record of the logger reports them
                asyncio.get_running_loop().call_later(self._end - now, self._end_second)
        return passes

    def _begin(self, now: float) -> int:
        """Begins a second. Returns the number of records dropped in the last one."""
        dropped, self._dropped, self._passed, self._end = self._dropped, 0, 0, now + 1.0
        return dropped

    def _end_second(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        self._report(dropped)

    def _report(self, dropped: int) -> None:
        if dropped:
            extra = {"fields": {"dropped": dropped}, "counts_dropped": True}
            self._logger.warning("more records than are logged in a second", extra=extra)


class LineFormatter(logging.Formatter):
    """Writes a record as one line for people: the level, the message and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line without control characters."""
        fields = ", ".join(f"{name}: {value}" for name, value in getattr(record, "fields", {}).items())
        error = record.exc_info[1] if record.exc_info else None
        parts = [f"{record.levelname.lower()}: {_message(record)}"]
        if error is not None:
            parts.append(f": {type(error).__name__}: {error}")
        if fields:
            parts.append(f" ({fields})")
        line = " ".join(without_credentials("".join(parts)).split())
        return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in line)


def configure(level: str, file: Path | None = None) -> None:
    """Sends the records of this process to standard error as JSON, or to a file.

    Args:
        level: The least severe level that is logged.
        file: The file, which is appended to. Standard error then has warnings and errors, in words.

    Raises:
        OSError: The file cannot be written.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handlers = [handler]
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler.setLevel(logging.WARNING)
        handler.setFormatter(LineFormatter())
        handler = logging.handlers.RotatingFileHandler(
            file, maxBytes=FILE_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace"
        )
        handlers.append(handler)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=handlers, force=True)
