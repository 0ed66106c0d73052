"""Reads answers in prose, and prose after JSON, for forms with deciding members.

A deciding member has options or is a bounded whole number, for example a verdict or a rating.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dramaturg.judge.commitments import committed_integer, committed_option
from dramaturg.judge.readings import mentions_option
from dramaturg.judge.reasoning import answer_text
from services.generation.answers.coercion import is_deciding
from services.generation.answers.extraction import UnreadableError
from services.generation.answers.forms import JsonForm

_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?![\w%])")


class _Deciding(NamedTuple):
    """A deciding member of the outermost object or of an object in it."""

    path: tuple[str, ...]
    label: str
    schema: Mapping[str, Any]


def prose_value(text: str, form: JsonForm) -> dict[str, Any] | None:
    """Returns the value of a text without JSON, or None where it states none clearly.

    The form must be an object with one deciding member; its other members are strings. The first of them, the
    reason, becomes the text.
    """
    members = form.resolve(form.resolve(form.schema).get("properties"))
    parts = {name: form.resolve(part) for name, part in members.items()}
    deciding = [name for name, part in parts.items() if is_deciding(part)]
    texts = [name for name, part in parts.items() if part.get("type") == "string" and "enum" not in part]
    if len(deciding) != 1 or len(texts) + 1 != len(parts):
        return None
    (name,) = deciding
    stated = _stated(text, _Deciding((name,), name, parts[name]))
    if stated is None:
        return None
    return {texts[0]: answer_text(text), name: stated} if texts else {name: stated}


def require_no_other_value(after: str, value: Any, form: JsonForm) -> None:
    """Refuses a value where the text after its JSON states another one.

    Raises:
        UnreadableError: The text states another value, or may do so.
    """
    if not after.strip("`*_ \t\r\n.") or not isinstance(value, dict):
        return
    deciding = [*_deciding(form)]
    for member in deciding:
        found: Any = value
        for name in member.path:
            found = found.get(name) if isinstance(found, dict) else None
        if _states_other(after, member, found, is_only=len(deciding) == 1):
            raise UnreadableError(f"the text after the JSON may state another {member.label}")


def _deciding(form: JsonForm) -> Iterator[_Deciding]:
    members = form.resolve(form.resolve(form.schema).get("properties"))
    for name, part in members.items():
        schema = form.resolve(part)
        if is_deciding(schema):
            yield _Deciding((name,), name, schema)
            continue
        inner = form.resolve(schema.get("properties"))
        options = [own for own, one in inner.items() if is_deciding(form.resolve(one))]
        if len(options) == 1:
            yield _Deciding((name, options[0]), name, form.resolve(inner[options[0]]))


def _stated(text: str, member: _Deciding) -> int | str | None:
    options = member.schema.get("enum")
    if isinstance(options, list):
        return committed_option(text, member.label, options)
    return committed_integer(text, member.label, member.schema["minimum"], member.schema["maximum"])


def _states_other(after: str, member: _Deciding, value: Any, *, is_only: bool) -> bool:
    if not is_only:
        stated = _stated(after, member)
        return stated is not None and stated != value
    options = member.schema.get("enum")
    if isinstance(options, list):
        return mentions_option(after, [option for option in options if option != value])
    scale = range(int(member.schema["minimum"]), int(member.schema["maximum"]) + 1)
    return any(int(number) in scale and int(number) != value for number in _NUMBER.findall(after))
