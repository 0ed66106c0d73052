"""Renders the templates of the console."""

from __future__ import annotations

from datetime import UTC
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from jinja2 import Environment
from markupsafe import escape

from dramaturg.report.page import environment, stylesheet

_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """A template as text. Texts in ``values`` are shown as text."""
    return _environment().get_template(template).render(version=version("dramaturg"), **values)


@cache
def style() -> str:
    """The style sheet: that of the report, and the console's own."""
    return stylesheet() + (_TEMPLATES / "console.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    return (_TEMPLATES / "console.js").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    made = environment(_TEMPLATES)
    made.filters["time"] = _time
    made.filters["minute"] = minute
    # What a visitor typed returns to the field unchanged.
    made.filters["typed"] = escape
    return made


def _time(moment: Timestamp) -> str:
    """A time in UTC; empty where it is absent."""
    if not moment.ToNanoseconds():
        return ""
    return moment.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def minute(moment: Timestamp) -> str:
    """A time in UTC to the minute, under a heading that names UTC."""
    return _time(moment)[:16]
