"""Reads the text of an answer as JSON that fits a schema. The rules are in docs/reference/answers.md.

The text is strict JSON, or has one JSON value in a code fence or in prose. JSON with errors of notation is
read where every character keeps its meaning. Values are converted to the schema's types, names and order
where the meaning stays the same. A text without JSON is read as a short answer where the schema has one
deciding member: options or a bounded whole number, for example a verdict or a rating.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from dramaturg.judge.reasoning import blanked
from dramaturg.judge.short_answers import Values, options, scale
from services.generation.answers.forms import JsonForm, UncertainError
from services.generation.answers.tolerant_json import BrokenJsonError, Members, read_tolerantly

MAX_VALUES = 32
"""The maximum number of bracketed parts of an answer."""

_BRACKETS = re.compile(r"[{}\[\]]")
_BRACKETS_OUTSIDE_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+"|\\.|[{}\[\]]', re.DOTALL)
_MEMBER = re.compile(r'"([\w.-]{1,100}+)"\s{0,20}:')
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?([eE][+-]?\d{1,2})?")
_BOOLEANS = {"true": True, "false": False}
_WORD = re.compile(r"[^\W_]+")


class UnreadableError(ValueError):
    """The text has no readable value; the message gives the reason in words for the model."""


class _NoJsonError(UnreadableError):
    """The text has no JSON."""


@dataclass(slots=True)
class ParsedAnswer:
    """An answer as read: canonical JSON, or why there is none."""

    json: str | None
    """Compact, members in the schema's order."""
    repairs: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A JSON value of a text, and the repairs that reading it needed."""

    value: Any
    repairs: tuple[str, ...] = ()
    fits: bool = False
    """Whether it is certain already that the value fits the form."""


def parse_answer(text: str, form: JsonForm, *, is_last: bool = False) -> ParsedAnswer:
    """Reads the one value in ``text`` that ``form`` asks for.

    ``repairs`` names each deviation from strict JSON of the form. No open end is closed, no choice is made
    between two values that disagree, and no part of the JSON text is dropped. Never raises.

    Args:
        text: The text of a model.
        form: The form.
        is_last: Whether the answer is not requested again, so that a part of it is better than none.
    """
    try:
        return ParsedAnswer(form.rewritten(text))
    except UncertainError:
        pass
    try:
        return _read(text, form, is_last=is_last)
    except UnreadableError as error:
        return ParsedAnswer(None, error=str(error))
    except RecursionError:
        return ParsedAnswer(None, error="the JSON is nested too deeply")


def _read(text: str, form: JsonForm, *, is_last: bool) -> ParsedAnswer:
    schema = form.resolve(form.schema)
    names = form.resolve(schema.get("properties"))
    lists = "array" in _types(schema)
    try:
        parts, after = _json_parts(text, [*names], lists=lists)
    except _NoJsonError as error:
        return _read_short(text, form, str(error))
    if names and not lists and not any(_has_object(part.value) for part in parts):
        return _read_short(text, form, "the answer is no JSON object")
    read = [_fitted(part, form) for part in parts]
    if len(read) > 1:
        # An example or a note in braces is not an answer; an object with a member of the form may be one.
        read = [part for part in read if not names or names.keys() & _member_names(part.value)] or read
    if len(read) > 1 and len({_compact(part.value) for part in read}) > 1:
        raise UnreadableError("the answer has several JSON values, which disagree")
    _require_no_other_value(after, read[0].value, form)
    return _checked(read[0], form, is_last=is_last)


def _checked(read: _Reading, form: JsonForm, *, is_last: bool) -> ParsedAnswer:
    text = _compact(read.value)
    violation = "" if read.fits else form.violation(read.value)
    if not violation:
        return ParsedAnswer(text, read.repairs)
    partial = form.fitting_parts(read.value) if is_last and form.accepted_text else read.value
    if is_last and form.accepted_text and not form.violation_of_parts(partial):
        return ParsedAnswer(_compact(partial), (*read.repairs, "part-removed"))
    return ParsedAnswer(None, read.repairs, violation)


def _compact(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        raise UnreadableError("a string has half of a surrogate pair, which is no character") from None
    except ValueError:
        raise UnreadableError("a number is too large") from None
    return text


def _has_object(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, dict) for item in value)
    )


def _member_names(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()


# The JSON in a text.


def _json_parts(text: str, names: Collection[str], *, lists: bool) -> tuple[Sequence[_Reading], str]:
    """Returns the JSON values in ``text`` and the text after the last one.

    Args:
        text: The text of a model.
        names: The names of expected members. Unreadable text in braces that has none of them counts as
            prose.
        lists: Whether lists within prose are read too.

    Raises:
        _NoJsonError: There is no value.
        UnreadableError: A value cannot be read.
    """
    body = text.strip().removeprefix("\ufeff").strip()
    try:
        part, end = _strict(body, 0)
        if end == len(body):
            return [part], ""
    except UnreadableError:
        raise
    except ValueError:
        pass
    body = blanked(body).rstrip()
    opening = re.compile(r"[{\[]" if lists else r"\{")
    around = "code-fence-removed" if "```" in body else "prose-removed"
    parts: list[_Reading] = []
    prose: list[str] = []
    position = count = after = 0
    while match := opening.search(body, position):
        count += 1
        if count > MAX_VALUES:
            raise UnreadableError(f"the answer has more than {MAX_VALUES} parts in brackets")
        prose.append(body[position : match.start()])
        try:
            part, position = _json_at(body, match.start())
        except UnreadableError:
            segment = body[match.start() : _segment_end(body, match.start())]
            if names and not any(name in segment for name in names):
                position = match.start() + len(segment)
                continue
            raise
        after = position
        is_whole = match.start() == 0 and position == len(body)
        parts.append(part if is_whole else _Reading(part.value, (around, *part.repairs)))
    if not parts:
        raise _NoJsonError("there is no JSON in the answer")
    prose.append(body[position:])
    if any(found[1] in names for outside in prose for found in _MEMBER.finditer(outside)):
        raise UnreadableError("a part of the JSON is outside of its brackets")
    return parts, body[after:]


def _segment_end(body: str, start: int) -> int:
    """Returns the position after the bracket that closes the one at ``start``, else the end.

    Where quotes are unbalanced, every bracket counts, as strings cannot be recognised.
    """
    for brackets in (_BRACKETS_OUTSIDE_STRINGS, _BRACKETS):
        depth = 0
        for match in brackets.finditer(body, start):
            if match[0] in "{[":
                depth += 1
            elif match[0] in "}]":
                depth -= 1
                if depth == 0:
                    return match.end()
    return len(body)


def _json_at(body: str, start: int) -> tuple[_Reading, int]:
    """Reads the value that begins at ``start``, as strict JSON or with errors of notation."""
    try:
        return _strict(body, start)
    except UnreadableError:
        raise
    except ValueError:
        pass
    try:
        value, end, repairs = read_tolerantly(body, start)
    except BrokenJsonError as error:
        raise UnreadableError(str(error)) from None
    order = ("comma-repaired", "json-repaired", "duplicate-removed")
    kept = {"json-repaired"} if "json-repaired" in repairs else repairs
    return _Reading(_plain(value), tuple(name for name in order if name in kept)), end


def _strict(text: str, start: int) -> tuple[_Reading, int]:
    """Reads strict JSON (RFC 8259) and returns the position after it.

    Raises:
        ValueError: It is not JSON.
        UnreadableError: It is JSON that is nested too deeply or contradicts itself.
    """
    repairs: tuple[str, ...] = ()

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repairs
        result = _unique(pairs)
        if len(result) != len(pairs):
            repairs = ("duplicate-removed",)
        return result

    decoder = json.JSONDecoder(object_pairs_hook=members, parse_constant=_refuse_constant)
    try:
        value, end = decoder.raw_decode(text, start)
    except RecursionError:
        raise UnreadableError("the JSON is nested too deeply") from None
    return _Reading(value, repairs), end


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _plain(value: Any) -> Any:
    """Converts ``Members`` to dictionaries.

    Raises:
        UnreadableError: A member is repeated with different values.
    """
    if isinstance(value, Members):
        return _unique([(name, _plain(member)) for name, member in value])
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        for name, value in pairs:
            if json.dumps(result[name], sort_keys=True) != json.dumps(value, sort_keys=True):
                raise UnreadableError(f"the member {name!r} is repeated with different values")
    return result


# Short answers, and what the text after JSON says.


class _Deciding(NamedTuple):
    """A deciding member of the outermost object or of an object in it."""

    path: tuple[str, ...]
    label: str
    values: Values[Any]


def _values_of(schema: Mapping[str, Any]) -> Values[Any] | None:
    """The values of a deciding member: its options, or the whole numbers within its bounds. None: no such."""
    names = schema.get("enum")
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return options(tuple(names))
    if "integer" in _types(schema) and {"minimum", "maximum"} <= schema.keys():
        return scale(schema["minimum"], schema["maximum"])
    return None


def _deciding(form: JsonForm) -> Iterator[_Deciding]:
    members = form.resolve(form.resolve(form.schema).get("properties"))
    for name, part in members.items():
        schema = form.resolve(part)
        values = _values_of(schema)
        if values is not None:
            yield _Deciding((name,), name, values)
            continue
        inner = form.resolve(schema.get("properties"))
        found = [(own, read) for own, one in inner.items() if (read := _values_of(form.resolve(one)))]
        if len(found) == 1:
            yield _Deciding((name, found[0][0]), name, found[0][1])


def _read_short(text: str, form: JsonForm, problem: str) -> ParsedAnswer:
    """Reads a text without JSON. The first member that is a text, the reason, becomes the text."""
    members = form.resolve(form.resolve(form.schema).get("properties"))
    parts = {name: form.resolve(part) for name, part in members.items()}
    deciding = {name: values for name, part in parts.items() if (values := _values_of(part)) is not None}
    texts = [name for name in parts if parts[name].get("type") == "string" and name not in deciding]
    if len(deciding) != 1 or len(texts) + 1 != len(parts):
        raise UnreadableError(problem)
    ((name, values),) = deciding.items()
    stated = values.value_of(text, name)
    if stated is None:
        raise UnreadableError(problem)
    reason = {texts[0]: blanked(text).strip()} if texts else {}
    return _checked(_Reading({**reason, name: stated}, ("prose-read",)), form, is_last=False)


def _require_no_other_value(after: str, value: Any, form: JsonForm) -> None:
    """Refuses a value where the text after its JSON names another one.

    Raises:
        UnreadableError: The text names another value of the only deciding member, or states one of several.
    """
    if not after.strip("`*_ \t\r\n.") or not isinstance(value, dict):
        return
    deciding = [*_deciding(form)]
    for member in deciding:
        read: Any = value
        for name in member.path:
            read = read.get(name) if isinstance(read, dict) else None
        stated = None if len(deciding) == 1 else member.values.value_of(after, member.label)
        if stated not in (None, read) or (len(deciding) == 1 and member.values.name_other(after, read)):
            raise UnreadableError(f"the text after the JSON may state another {member.label}")


# The types, names and order of the schema.


def _fitted(part: _Reading, form: JsonForm) -> _Reading:
    try:
        return _Reading(form.arranged(part.value), part.repairs, fits=True)
    except UncertainError:
        value, conversions = conform(part.value, form)
        return _Reading(value, (*part.repairs, *conversions))


def conform(value: Any, form: JsonForm) -> tuple[Any, list[str]]:
    """Returns ``value`` in the schema's types and member order, and a list of the conversions.

    Values are converted only if the meaning stays the same: ``"true"`` to true, ``"3"`` and ``"[[3]]"`` to 3,
    ``3.0`` to 3 where the schema has an integer, ``"PASS."`` to one of the schema's options, ``7`` to ``"7"``
    where it has a string, ``"null"`` to null. Names of members are matched without regard to case and
    punctuation. Members that a closed object does not list are left out. A list of one object, or an object
    with one member, around the answer is removed. All other values stay unchanged and are left to validation.

    Raises:
        UnreadableError: An additional member has another value of a deciding member.
    """
    repairs: dict[str, None] = {}
    conformed = _conform(_unwrapped(value, form, repairs), form.schema, form, repairs)
    return conformed, list(repairs)


def _unwrapped(value: Any, form: JsonForm, repairs: dict[str, None]) -> Any:
    schema = form.resolve(form.schema)
    names = {_folded(name) for name in form.resolve(schema.get("properties"))}
    if "object" not in _types(schema) or not names:
        return value
    inner = value
    if isinstance(value, list) and len(value) == 1:
        inner = value[0]
    elif isinstance(value, dict) and len(value) == 1 and not names & {*map(_folded, value)}:
        (inner,) = value.values()
    if inner is value or not isinstance(inner, dict) or not names & {*map(_folded, inner)}:
        return value
    repairs["wrapper-removed"] = None
    return inner


def _conform(value: Any, schema: Any, form: JsonForm, repairs: dict[str, None]) -> Any:
    schema = form.resolve(schema)
    if isinstance(value, dict):
        return _object(value, schema, form, repairs)
    if isinstance(value, list):
        return [_conform(item, schema.get("items"), form, repairs) for item in value]
    converted, repair = _convert(value, schema)
    if repair:
        repairs[repair] = None
    return converted


def _object(
    value: Mapping[str, Any], schema: Mapping[str, Any], form: JsonForm, repairs: dict[str, None]
) -> dict[str, Any]:
    members = form.resolve(schema.get("properties"))
    renamed = _renamed(value, members, repairs)
    listed = {name: renamed[name] for name in members if name in renamed}
    absent = {
        name for name, member in listed.items() if member is None and _excludes_null(members[name], form)
    }
    if absent:
        repairs["null-removed"] = None
    conformed = {
        name: _part(name, member, members[name], form, repairs)
        for name, member in listed.items()
        if name not in absent
    }
    extra = {name: member for name, member in renamed.items() if name not in members}
    if not extra:
        return conformed
    if not members or schema.get("additionalProperties") is not False:
        return conformed | {name: _conform(member, None, form, repairs) for name, member in extra.items()}
    for name, member in extra.items():
        _require_agreement(name, member, conformed, members, form)
    repairs["member-removed"] = None
    return conformed


def _part(name: str, value: Any, schema: Any, form: JsonForm, repairs: dict[str, None]) -> Any:
    """Converts a member, for example the section of a criterion.

    A bare value in place of a section is its deciding member, one object in place of a list its only item,
    and a list of texts in place of a reason its paragraphs. A section that contradicts itself becomes null,
    which violates the schema, so that the other sections keep their values.
    """
    schema = form.resolve(schema)
    types = _types(schema)
    if isinstance(value, dict) and types == ("array",):
        repairs["list-completed"] = None
        return [_conform(value, schema.get("items"), form, repairs)]
    is_texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
    is_reason = types == ("string",) and "enum" not in schema and name in form.optional_members
    if is_texts and is_reason:
        repairs["list-joined"] = None
        return "\n".join(value)
    if isinstance(value, str | int | float) and "object" in types:
        members = form.resolve(schema.get("properties"))
        read = {own: _deciding_value(value, form.resolve(part)) for own, part in members.items()}
        fitting = {own: found for own, found in read.items() if found is not None}
        if len(fitting) == 1:
            repairs["section-completed"] = None
            return fitting
    try:
        return _conform(value, schema, form, repairs)
    except UnreadableError:
        if isinstance(value, dict):
            return None
        raise


def _deciding_value(value: Any, schema: Mapping[str, Any]) -> int | str | None:
    """The value of a deciding member as its schema has it. None: it is no such value or no such member."""
    if _values_of(schema) is None or isinstance(value, bool):
        return None
    converted, _ = _convert(value, schema)
    names = schema.get("enum")
    if isinstance(names, list):
        return converted if converted in names else None
    is_on_scale = isinstance(converted, int) and schema["minimum"] <= converted <= schema["maximum"]
    return converted if is_on_scale else None


def _require_agreement(
    name: str, member: Any, conformed: Mapping[str, Any], members: Mapping[str, Any], form: JsonForm
) -> None:
    """Refuses an additional member that may hold the answer in place of a member of the schema.

    Raises:
        UnreadableError: Its value is another one of a deciding member's values.
    """
    for own, schema in members.items():
        stated = _deciding_value(member, form.resolve(schema))
        if stated is not None and stated != conformed.get(own):
            raise UnreadableError(f"the members {own!r} and {name!r} disagree")


def _excludes_null(schema: Any, form: JsonForm) -> bool:
    types = _types(form.resolve(schema))
    return bool(types) and "null" not in types


def _renamed(
    value: Mapping[str, Any], members: Mapping[str, Any], repairs: dict[str, None]
) -> Mapping[str, Any]:
    """Gives members the schema's spelling of their names, where exactly one member has that name."""
    unknown = [name for name in value if name not in members]
    if not unknown:
        return value
    spellings = {_folded(name): name for name in members if name not in value}
    meant = {name: spellings.get(_folded(name)) for name in unknown}
    unique = [name for name in meant.values() if name is not None]
    names = {name: to for name, to in meant.items() if to is not None and unique.count(to) == 1}
    if not names:
        return value
    repairs["member-renamed"] = None
    return {names.get(name, name): member for name, member in value.items()}


def _folded(name: str) -> str:
    return "".join(_WORD.findall(name.casefold()))


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    types = schema.get("type", ())
    return (types,) if isinstance(types, str) else tuple(types)


def _convert(value: Any, schema: Mapping[str, Any]) -> tuple[Any, str]:
    types = _types(schema)
    names = schema.get("enum")
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return _option(value, names)
    if isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer():
        return int(value), "number-to-integer"
    if isinstance(value, int) and not isinstance(value, bool) and types == ("string",):
        return str(value), "number-to-string"
    if not isinstance(value, str) or not types or "string" in types:
        return value, ""
    text = value.strip()
    if "boolean" in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()], "string-to-boolean"
    if {"integer", "number"} & {*types} and _INTEGER.fullmatch(text):
        return int(text), "string-to-number"
    if "number" in types and _NUMBER.fullmatch(text):
        return float(text), "string-to-number"
    if "null" in types and text.lower() == "null":
        return None, "string-to-null"
    if "integer" in types:
        number = scale(schema.get("minimum"), schema.get("maximum")).value_of(text)
        if number is not None:
            return number, "string-to-number"
    return value, ""


def _option(value: Any, names: list[str]) -> tuple[Any, str]:
    if value in names:
        return value, ""
    if isinstance(value, int) and not isinstance(value, bool) and str(value) in names:
        return str(value), "number-to-string"
    option = options(tuple(names)).value_of(value) if isinstance(value, str) else None
    return (value, "") if option is None else (option, "option-recognised")
