"""Logs as JSON, one object a line, on standard error or in a file; and the removal of secrets from texts.

The records of all loggers pass the formatters of this module, which remove credentials
(``without_credentials``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from dramaturg.service.context import current
from dramaturg.service.telemetry import tracing

LEAST_SECRET_LENGTH = 8
"""The length of the shortest secret that is removed, in characters. Shorter ones are no secrets but
placeholders, such as "none", and their letters are part of other words."""
REDACTED = "[key]"
"""What stands in place of a secret."""


def secrets_of(values: Iterable[str]) -> list[str]:
    """The values that are removed from texts, the longest first: one may be a part of another."""
    return sorted({value for value in values if len(value) >= LEAST_SECRET_LENGTH}, key=len, reverse=True)


def redact(text: str, secrets: Iterable[str]) -> str:
    """A text without secrets.

    Args:
        text: The text.
        secrets: The secrets, as ``secrets_of`` returns them.
    """
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


_START = r"(?:(?<![\w-])|(?<=\\[rnt]))"
_ESCAPED_END = r"\\{1,4}[rn]"
_SIGNS = ("authorization", "bearer", "cookie", "token", "secret", "password", "key", "eyj", "://")
"""What a text with credentials has in lower case. Most texts have none of it, which is found out in less time
than the patterns take."""
_HEADER = re.compile(
    rf"{_START}((?:proxy-)?authorization|(?:set-)?cookie|api-?key|x-[a-z0-9-]*(?:key|token|secret))"
    r"(?=\W{0,6}[:=,])"
    # To the end of the line, be it escaped, and on a line that continues it.
    rf"(?:(?!{_ESCAPED_END})[^\r\n]|(?:\r?\n|(?:\\{{1,4}}r)?\\{{1,4}}n)[ \t])*",
    re.IGNORECASE,
)
_BEARER = re.compile(rf"{_START}(bearer)(?:{_ESCAPED_END}|[\s:=,'\"-])+[^\s'\",;)\\]{{8,}}", re.IGNORECASE)
_FIELD = re.compile(
    rf"{_START}([\w-]*(?:token|password|secret|api_?key)\\?['\"]?)\s*(?:=|(?<=['\"])\s*:)\s*"
    r"\\?['\"]?[^\s&;,'\")]+",
    re.IGNORECASE,
)
_WEB_TOKEN = re.compile(rf"{_START}eyJ[\w-]{{5,}}\.[\w-]{{5,}}\.[\w-]*")
_PASSWORD = re.compile(r"(?<=://)[^\s/@:]{0,200}:[^\s/@]+(?=@)")


def without_credentials(text: str) -> str:
    """A text without what looks like credentials of any caller or service.

    Removed are the values of the headers and metadata that carry credentials, bearer tokens, JSON Web Tokens,
    fields such as ``token=...`` and ``"password": "..."``, and passwords in addresses. A secret without such
    a form is not recognized: what is known to be one is removed by ``redact``.

    Args:
        text: The text. Lines may be escaped, as ``repr`` writes them.
    """
    lower = text.lower()
    for sign in _SIGNS:
        if sign in lower:
            break
    else:
        return text
    text = _HEADER.sub(rf"\1: {REDACTED}", text)
    text = _FIELD.sub(rf"\1={REDACTED}", text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    text = _WEB_TOKEN.sub(REDACTED, text)
    return _PASSWORD.sub(REDACTED, text)


# Made once: a call of json.dumps with options makes one each time.
_encode = json.JSONEncoder(ensure_ascii=False).encode

_SHORT = 200
FILE_BYTES = 10 << 20
"""The most bytes of a log file; a larger one is renamed, and one such file is kept."""
REFUSALS_A_SECOND = 10
"""The most records a second of each kind that callers without an identity cause (``RateLimit``)."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object.

    Members: the time (UTC), level, logger, message, the ids of the trace and of the span, the request id, and
    the fields of ``extra``.

    ``logger.info("call", extra={"fields": {"seconds": 0.2}})`` adds the member ``seconds``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object in one line."""
        request, span = current(), tracing.ids()
        members: dict[str, object] = {}
        if request is not None:
            members["request_id"] = request.request_id
        members |= getattr(record, "fields", {})
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        line = f'{{"time": "{_time(record.created)}", '
        line += _head(record.levelname, record.name, _message(record))
        if span is not None:
            # Hexadecimal digits, which no other record has.
            line += f', "trace_id": "{span.trace_id}", "span_id": "{span.span_id}"'
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
