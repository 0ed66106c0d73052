"""Logs as JSON, one object a line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from dramaturg.service.context import current
from dramaturg.service.telemetry import tracing

# Made once: a call of json.dumps with options makes one each time.
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object.

    Members: the time (UTC), level, logger, message, the request id, the ids of the trace and of the span, and
    the fields of ``extra``.

    ``logger.info("call", extra={"fields": {"seconds": 0.2}})`` adds the member ``seconds``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object in one line."""
        request = current()
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request is not None:
            entry["request_id"] = request.request_id
        span = tracing.ids()
        if span is not None:
            entry["trace_id"], entry["span_id"] = span
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _encode(entry)


def write(logger: logging.Logger, level: int, message: str, fields: Mapping[str, object]) -> None:
    """Logs without looking up where from, which costs as much as the rest: for what every call logs."""
    if logger.isEnabledFor(level):
        record = logging.LogRecord(logger.name, level, "", 0, message, None, None)
        record.fields = fields
        logger.handle(record)


def configure(level: str) -> None:
    """Sends everything of this process to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
