"""Lines of the log."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.service import context, logs

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
HEAD = {"time", "level", "logger", "message"}


class Kept(logging.Handler):
    """Keeps the records that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def logger(kept: Kept) -> logging.Logger:
    """A logger of the test alone."""
    made = logging.getLogger("dramaturg.tests.logs")
    made.setLevel(logging.INFO)
    made.propagate = False
    made.handlers, made.filters = [kept], []
    return made


def record(message: str, created: float, fields: dict[str, Any]) -> logging.LogRecord:
    made = logging.LogRecord("a.logger", logging.WARNING, "", 0, message, None, None)
    made.created, made.fields = created, fields
    return made


@given(
    st.text(),
    st.floats(0, 4e9),
    st.dictionaries(
        st.text().filter(lambda name: name not in {"time", "level", "logger", "message"}), VALUES
    ),
)
def test_a_line_is_what_json_makes_of_the_members(
    message: str, created: float, fields: dict[str, Any]
) -> None:
    expected = {
        "time": datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds"),
        "level": "WARNING",
        "logger": "a.logger",
        "message": message,
        "request_id": "r-1",
        **fields,
    }
    with context.scope(context.RequestContext("r-1")):
        line = logs.JsonFormatter().format(record(message, created, fields))
    assert line == json.dumps(expected, ensure_ascii=False)


def test_a_line_is_one_line_and_names_what_was_raised() -> None:
    raised = (ValueError, ValueError("no\ngood"), None)
    made = logging.LogRecord("a", logging.ERROR, "", 0, "it %s", ("failed",), raised)
    line = logs.JsonFormatter().format(made)
    assert "\n" not in line
    assert json.loads(line)["message"] == "it failed"
    assert "no\ngood" in json.loads(line)["exception"]


def test_a_written_line_is_a_record_like_any_other(logger: logging.Logger, kept: Kept) -> None:
    """Whatever handler a deployment adds, with whatever format."""
    for _ in range(2):
        before = time.time()
        logs.write(logger, logging.INFO, "call", {"code": "OK"})
        logger.info("call", extra={"fields": {"code": "OK"}})
        written, usual = kept.records[-2:]
        assert before <= written.created <= usual.created <= time.time()
        assert written.msecs == int(math.modf(written.created)[0] * 1000)
        assert written.relativeCreated == pytest.approx(usual.relativeCreated, abs=1000)
        place = {"pathname", "filename", "module", "lineno", "funcName", "args", "exc_info", "stack_info"}
        moment = {"created", "msecs", "relativeCreated", "taskName"}
        for name in vars(usual).keys() - place - moment:
            assert vars(written)[name] == vars(usual)[name], name
        assert place <= vars(written).keys()


def test_no_line_has_credentials_whoever_wrote_it() -> None:
    """In the message, its arguments, the exception, its causes, and the fields."""
    secret = "pl4nted-0123456789"

    def fail() -> None:
        raise RuntimeError(f"token={secret}") from ValueError(f"b'Authorization: Bearer {secret}\\n'")

    try:
        fail()
    except RuntimeError:
        made = logging.LogRecord(
            "third.party",
            logging.ERROR,
            "",
            0,
            f"x-api-key: {secret} %s",
            (f"Bearer {secret}",),
            sys.exc_info(),
        )
    made.fields = {
        "metadata": [("authorization", f"Bearer {secret}")],
        "said": f"Bearer {secret}",
        "count": 3,
    }
    line = logs.JsonFormatter().format(made)
    assert secret not in line
    assert json.loads(line)["count"] == 3
    assert "RuntimeError" in json.loads(line)["exception"]
    assert secret not in logs.LineFormatter().format(made)


def test_arguments_that_do_not_fit_lose_no_line() -> None:
    made = logging.LogRecord("third.party", logging.ERROR, "", 0, "%d calls", ("many",), None)
    assert json.loads(logs.JsonFormatter().format(made))["message"].startswith("%d calls (")
    assert "%d calls" in logs.LineFormatter().format(made)


async def test_a_limited_logger_counts_what_it_drops(logger: logging.Logger, kept: Kept) -> None:
    logs.RateLimit(logger, lambda record: record.getMessage() == "refused")
    for _ in range(3 * logs.REFUSALS_A_SECOND):
        logger.info("refused")
        logger.info("served")
    messages = Counter(one.getMessage() for one in kept.records)
    assert messages == {"refused": logs.REFUSALS_A_SECOND, "served": 3 * logs.REFUSALS_A_SECOND}
    begun = time.monotonic()
    while kept.records[-1].__dict__.get("fields") != {"dropped": 2 * logs.REFUSALS_A_SECOND}:
        assert time.monotonic() - begun < 10
        await asyncio.sleep(0.02)
    logger.info("refused")
    assert kept.records[-1].getMessage() == "refused"


def test_without_a_loop_the_next_record_counts_what_was_dropped(
    logger: logging.Logger, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    logs.RateLimit(logger)
    for _ in range(logs.REFUSALS_A_SECOND + 2):
        logger.info("refused")
    now += 1.0
    logger.info("refused")
    counts, last = kept.records[-2:]
    assert (counts.__dict__["fields"], last.getMessage()) == ({"dropped": 2}, "refused")


def test_a_line_below_the_level_is_not_written(logger: logging.Logger, kept: Kept) -> None:
    logs.write(logger, logging.DEBUG, "call", {})
    assert not kept.records


def test_in_words_a_record_is_one_line_without_control_characters() -> None:
    made = record("the provider\n\x1b[31mrefuses", 0.0, {"run": "a", "count": 3})
    made.exc_info = (ValueError, ValueError("no\nkey"), None)
    shown = logs.LineFormatter().format(made)
    assert shown == "warning: the provider \ufffd[31mrefuses: ValueError: no key (run: a, count: 3)"


def test_with_a_file_standard_error_has_warnings_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure("INFO", tmp_path / "state" / "up.log")
        logging.getLogger("x").info("listening")
        logging.getLogger("x").warning("slow", extra={"fields": {"seconds": 2}})
        for made in root.handlers:
            made.close()
    finally:
        root.handlers, root.level = handlers, level
    assert capsys.readouterr().err == "warning: slow (seconds: 2)\n"
    written = (tmp_path / "state" / "up.log").read_text().splitlines()
    assert [json.loads(line)["message"] for line in written] == ["listening", "slow"]
