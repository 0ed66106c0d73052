"""Logs as JSON, one object a line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from dramaturg.service.context import current


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object.

    Members: the time (UTC), level, logger, message, the request id, and the fields of ``extra``.

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
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def configure(level: str) -> None:
    """Sends everything of this process to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
