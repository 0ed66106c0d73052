"""Rules of criteria: conditions on a text, decided without a model; rubrics, checked and as judges get them.

A rule is checked once (``rule_problem``) and applied to many texts (``apply_rule``). Regular expressions take
time linear in the text: the engine is that of ``pydantic_core``, of the Rust crate regex.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from pydantic_core import SchemaError, SchemaValidator, core_schema

from dramaturg.api.common.v1.content_pb2 import Conversation
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.api.judging.v1 import judge_service_pb2 as pb
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, CriterionRule
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_CRITERION, Role
from dramaturg.judge.conversations import arguments_of, tool_calls
from dramaturg.judge.criteria import scale_problem
from dramaturg.judge.steps import is_blank
from dramaturg.service.errors import Violation
from dramaturg.service.validation import check_distinct

MAX_SCHEMA_SIZE = 5_000
"""The most subschemas of a JSON Schema, each reference counted as what it refers to."""
MAX_SCHEMA_CHARACTERS = 50_000
"""The most characters of a JSON Schema as JSON."""
MAX_SCHEMA_CHECKS = 500_000
"""The most checks of a text by a JSON Schema: its subschemas times the values in the text."""
MAX_NUMBER_CHARACTERS = 300
"""The most characters of a number in a text; a longer one is not read."""

_COPIES = 32
"""A regular expression is small enough if this number of copies of it in a row compiles. A program of that
size takes under 0.1 s for a text of 200,000 characters, and one of twice the size many seconds.
"""
_NUMBER = re.compile(
    # At most five groups of thousands: without an end, a long row of groups takes quadratic time.
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3}){1,5}(?![\d,])|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3}(?!\d))?"
)
_FENCED = re.compile(r"\s*```[a-zA-Z]*[ \t]*\n(?P<json>[^`]*)```\s*")
_SENTENCE_END = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]+[\"')\]\u201d]*(?=\s|\Z)")
_UNITS = {
    pb.LENGTH_UNIT_UNSPECIFIED: "word",
    pb.LENGTH_UNIT_WORDS: "word",
    pb.LENGTH_UNIT_CHARACTERS: "character",
    pb.LENGTH_UNIT_SENTENCES: "sentence",
    pb.LENGTH_UNIT_LINES: "line",
    pb.LENGTH_UNIT_PARAGRAPHS: "paragraph",
}
_SHOWN = 80


class Decision(NamedTuple):
    """What a rule decides of a text."""

    passes: bool | None
    """Whether the criterion passes. None: the rule cannot be applied."""
    reason: str
    """What the text has, in a sentence."""


def rule_problem(rule: CriterionRule) -> str:
    """Says why a rule cannot be applied. Empty: it can."""
    condition = rule.WhichOneof("condition")
    if condition is None:
        return "has no condition: set one of " + ", ".join(_conditions())
    if condition in ("equals", "contains", "matches") and not getattr(rule, condition).strip():
        return f"{condition} must not be blank"
    if condition in ("equals_reference", "contains_reference") and not getattr(rule, condition):
        return f"{condition} must be true where it is set"
    if condition == "number":
        parts = (rule.number.value, rule.number.tolerance, rule.number.relative_tolerance)
        return "" if all(map(math.isfinite, parts)) else "number: must be finite"
    if condition == "length":
        return _range_problem(rule.length)
    try:
        if condition == "matches":
            _expression(rule.matches)
        elif condition == "json_schema":
            _validator(_schema_text(rule))
    except ValueError as error:
        return f"{condition}: {error}"
    return ""


def apply_rule(
    rule: CriterionRule, text: str, reference: str, conversation: Conversation | None = None
) -> Decision:
    """Applies a rule.

    Args:
        rule: The rule, without a problem (``rule_problem``).
        text: The text.
        reference: The reference of the task. Empty: there is none.
        conversation: The conversation. None: a text is judged.
    """
    condition = str(rule.WhichOneof("condition"))
    if condition == "tool_call":
        if conversation is None:
            return Decision(None, "The text is no conversation: it calls no tools.")
        called, reason = _calls(rule.tool_call, conversation)
        return Decision(called != rule.negate, reason)
    by_reference = condition in ("equals_reference", "contains_reference") or (
        condition == "number" and not rule.number.HasField("value")
    )
    if by_reference and not reference.strip():
        return Decision(None, "The task has no reference.")
    meets, reason = _APPLIED[condition](rule, text, reference)
    return Decision(None if meets is None else meets != rule.negate, reason)


def describe_rule(rule: CriterionRule) -> str:
    """A rule in words, as the definition of its criterion: what passes."""
    condition = rule.WhichOneof("condition")
    said = ""
    if condition in ("equals", "contains", "matches"):
        verb = {"equals": "is", "contains": "contains", "matches": "has a match of the regular expression"}
        said = f"{verb[condition]} {_quoted(getattr(rule, condition))}"
    elif condition == "json_schema":
        said = f"is JSON that is valid by the JSON Schema {_schema_text(rule)}"
    elif condition == "number":
        number = rule.number
        value = f"{number.value:g}" if number.HasField("value") else "that of the reference"
        said = f"has as its last number {value}"
        if number.tolerance or number.relative_tolerance:
            said += f", or one within {number.tolerance:g} or {number.relative_tolerance:.3%} of it"
    elif condition == "length":
        said = f"has {_range_text(rule.length)}"
    elif condition == "tool_call":
        call = rule.tool_call
        said = f"calls the tool {call.name!r}"
        if call.HasField("arguments"):
            said += f" with {json.dumps(MessageToDict(call.arguments), ensure_ascii=False)}"
        said += f" after {call.after!r}" if call.after else ""
    elif condition:
        said = "is the reference" if condition == "equals_reference" else "contains the reference"
    return f"The text {said}." if not rule.negate else f"It is not so that the text {said}."


def normalized(text: str) -> str:
    """A text in the form that rules compare: NFKC, case folded, white space as single spaces."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def _calls(wanted: pb.ToolCallCondition, conversation: Conversation) -> tuple[bool, str]:
    """Whether a tool is called as wanted."""
    calls = list(tool_calls(conversation))
    names = [call.name for call in calls]
    if wanted.name not in names:
        return False, f"The tool {wanted.name!r} is not called."
    members = MessageToDict(wanted.arguments)
    known_after = not wanted.after
    for call in calls:
        given = arguments_of(call)
        fits = given is not None and all(
            name in given and _same(given[name], value) for name, value in members.items()
        )
        if call.name == wanted.name and known_after and fits:
            return True, f"The tool {wanted.name!r} is called as wanted."
        known_after = known_after or call.name == wanted.after
    if wanted.after and wanted.after not in names[: len(names) - 1 - names[::-1].index(wanted.name)]:
        return False, f"The tool {wanted.name!r} is called, but not after {wanted.after!r}."
    last = next(call for call in reversed(calls) if call.name == wanted.name)
    return False, f"The tool {wanted.name!r} is called with other arguments: {_short(last.arguments)}."


def _same(given: Any, wanted: Any) -> bool:
    """Whether two values of JSON are equal: true is not 1."""
    if isinstance(given, dict) and isinstance(wanted, dict):
        return given.keys() == wanted.keys() and all(_same(given[name], wanted[name]) for name in wanted)
    if isinstance(given, list) and isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(_same, given, wanted))
    return isinstance(given, bool) == isinstance(wanted, bool) and bool(given == wanted)


def _equals(rule: CriterionRule, text: str, expected: str) -> tuple[bool, str]:
    meets = text == expected if rule.exact else _trimmed(text) == _trimmed(expected)
    return meets, f"The text {'is' if meets else 'is not'} {_short(expected)}."


def _contains(rule: CriterionRule, text: str, expected: str) -> tuple[bool, str]:
    meets = expected in text if rule.exact else normalized(expected) in normalized(text)
    return meets, f"The text {'contains' if meets else 'does not contain'} {_short(expected)}."


def _matches(rule: CriterionRule, text: str) -> tuple[bool, str]:
    meets = _expression(rule.matches).isinstance_python(text)
    return meets, f"The text has {'a' if meets else 'no'} match of {_short(rule.matches)}."


def _fits_schema(rule: CriterionRule, text: str) -> tuple[bool | None, str]:
    fenced = _FENCED.fullmatch(text)
    validator, size = _validator(_schema_text(rule))
    try:
        value = json.loads(fenced["json"] if fenced else text, parse_constant=_refuse_constant)
        if size * _value_count(value) > MAX_SCHEMA_CHECKS:
            return None, f"The JSON has too many values for the schema: at most {MAX_SCHEMA_CHECKS // size}."
        error = next(validator.iter_errors(value), None)
    except (ValueError, RecursionError) as broken:
        return False, f"The text is not JSON: {str(broken)[:_SHOWN]}."
    if error is None:
        return True, "The text is JSON that is valid by the schema."
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return False, f"The JSON is not valid at ${path[:_SHOWN]}: {error.message[:200]}."


def _number(rule: CriterionRule, text: str, reference: str) -> tuple[bool | None, str]:
    number = rule.number
    wanted = number.value if number.HasField("value") else last_number(reference)
    if wanted is None:
        return None, "The reference has no number."
    given = last_number(text)
    if given is None:
        return False, "The text has no number."
    difference = abs(given - wanted)
    meets = difference <= max(number.tolerance, number.relative_tolerance * abs(wanted))
    # A decimal such as 0.3 is not exact in binary: equal to 15 digits is equal.
    meets = meets or math.isclose(difference, number.tolerance, rel_tol=1e-12, abs_tol=abs(wanted) * 1e-15)
    return meets, f"The last number of the text is {given:.15g}; {wanted:.15g} is wanted."


def last_number(text: str) -> float | None:
    """The last number of a text, with thousands separated by commas or not. None: it has none."""
    found = None
    for match in _NUMBER.finditer(text.replace("\u2212", "-")):
        if match.end() - match.start() <= MAX_NUMBER_CHARACTERS:
            found = match
    value = None if found is None else float(found[0].replace(",", ""))
    return value if value is not None and math.isfinite(value) else None


def _length(rule: CriterionRule, text: str) -> tuple[bool, str]:
    length = rule.length
    count = _count(_UNITS[length.unit], text)
    meets = (not length.HasField("at_least") or count >= length.at_least) and (
        not length.HasField("at_most") or count <= length.at_most
    )
    noun = _UNITS[length.unit]
    return meets, f"The text has {count} {noun if count == 1 else f'{noun}s'}."


def _count(unit: str, text: str) -> int:
    if unit == "character":
        return len(text)
    if unit == "word":
        return len(text.split())
    if unit == "line":
        return sum(bool(line.strip()) for line in text.splitlines())
    if unit == "paragraph":
        return sum(bool(part.strip()) for part in re.split(r"\n[ \t]*\n", text))
    rest = _SENTENCE_END.split(text)[-1].strip()
    return len(_SENTENCE_END.findall(text)) + bool(rest)


_APPLIED: Mapping[str, Callable[[CriterionRule, str, str], tuple[bool | None, str]]] = {
    "equals": lambda rule, text, _: _equals(rule, text, rule.equals),
    "equals_reference": _equals,
    "contains": lambda rule, text, _: _contains(rule, text, rule.contains),
    "contains_reference": _contains,
    "matches": lambda rule, text, _: _matches(rule, text),
    "json_schema": lambda rule, text, _: _fits_schema(rule, text),
    "number": _number,
    "length": lambda rule, text, _: _length(rule, text),
}


def _conditions() -> Iterator[str]:
    for field in CriterionRule.DESCRIPTOR.oneofs_by_name["condition"].fields:
        yield field.name


def _trimmed(text: str) -> str:
    """The normalized text without punctuation at its ends."""
    text = normalized(text)
    start, end = 0, len(text)
    while start < end and unicodedata.category(text[start])[0] in "PZ":
        start += 1
    while end > start and unicodedata.category(text[end - 1])[0] in "PZ":
        end -= 1
    return text[start:end] or text


def _short(text: str) -> str:
    return _quoted(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _quoted(text: str) -> str:
    # A regular expression is shown as it is written: repr doubles its backslashes.
    return f"'{text}'" if text.isprintable() else repr(text)


def _range_problem(length: pb.LengthCondition) -> str:
    if length.unit not in _UNITS:
        return "length.unit: is unknown"
    if not (length.HasField("at_least") or length.HasField("at_most")):
        return "length: has neither at_least nor at_most"
    if length.HasField("at_least") and length.HasField("at_most") and length.at_least > length.at_most:
        return "length: at_least is greater than at_most"
    return ""


def _range_text(length: pb.LengthCondition) -> str:
    ends = [f"at least {length.at_least}"] if length.HasField("at_least") else []
    ends += [f"at most {length.at_most}"] if length.HasField("at_most") else []
    return f"{' and '.join(ends)} {_UNITS[length.unit]}s"


@lru_cache(maxsize=256)
def _expression(pattern: str) -> SchemaValidator:
    """Compiles a regular expression.

    Raises:
        ValueError: It is invalid or too large.
    """

    def compiled(expression: str) -> SchemaValidator:
        return SchemaValidator(core_schema.str_schema(pattern=expression, regex_engine="rust-regex"))

    try:
        expression = compiled(pattern)
        compiled(f"(?:{pattern}){{{_COPIES}}}")
    except SchemaError as error:
        problem = str(error).rpartition("rror: ")[2][:200]
        if "exceeds size limit" in problem:
            problem = "shorten its counted repetitions, or use classes of ASCII such as [a-z0-9_]"
            raise ValueError(f"is too large: {problem}") from None
        raise ValueError(f"is no regular expression: {problem}") from None
    return expression


def _schema_text(rule: CriterionRule) -> str:
    return json.dumps(MessageToDict(rule.json_schema), ensure_ascii=False, sort_keys=True)


@lru_cache(maxsize=64)
def _validator(schema: str) -> tuple[Any, int]:
    """Compiles a JSON Schema, given as JSON. Returns the validator and the number of subschemas.

    Raises:
        ValueError: It is invalid, too large, recursive, or refers to another document.
    """
    # The client does not need the package.
    import jsonschema
    from jsonschema import Draft202012Validator, FormatChecker, ValidationError, validators
    from referencing import Registry

    if len(schema) > MAX_SCHEMA_CHARACTERS:
        raise ValueError(f"has {len(schema)} characters as JSON; at most {MAX_SCHEMA_CHARACTERS} are allowed")
    parsed = json.loads(schema)
    try:
        Draft202012Validator.check_schema(parsed, format_checker=FormatChecker(()))
    except jsonschema.SchemaError as error:
        raise ValueError(f"is no JSON Schema: {error.message[:200]}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    size = _expanded(parsed, parsed, (), {})
    if size > MAX_SCHEMA_SIZE:
        raise ValueError(f"has more than {MAX_SCHEMA_SIZE} parts, references expanded")

    def pattern(validator: Any, expression: str, instance: Any, schema: Any) -> Iterator[Any]:
        del validator, schema
        if isinstance(instance, str) and not _expression(expression).isinstance_python(instance):
            yield ValidationError(f"{_short(instance)} does not match {_short(expression)}")

    def unique(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
        # The package compares every pair.
        del validator, schema
        if wanted and isinstance(instance, list) and len(set(map(_canonical, instance))) < len(instance):
            yield ValidationError("has equal elements")

    extend: Any = validators.extend
    keywords = {"pattern": pattern, "uniqueItems": unique}
    return extend(Draft202012Validator, keywords)(parsed, registry=Registry()), size


def _value_count(value: Any) -> int:
    """The number of values of JSON, those in lists and objects counted too."""
    if isinstance(value, dict):
        return 1 + sum(map(_value_count, value.values()))
    return 1 + sum(map(_value_count, value)) if isinstance(value, list) else 1


def _canonical(value: Any) -> str:
    """A text that equal values of JSON share: 1 is 1.0, and true is not 1."""

    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: plain(one) for name, one in part.items()}
        if isinstance(part, list):
            return [plain(one) for one in part]
        return int(part) if isinstance(part, float) and part.is_integer() else part

    return json.dumps(plain(value), sort_keys=True)


def _expanded(part: Any, root: Any, path: tuple[str, ...], known: dict[str, int]) -> int:
    """The number of parts of a schema, references expanded: it bounds the time of a validation.

    Raises:
        ValueError: It has a reference that is not local or is recursive, an expression that cannot be used,
            or a keyword that is not supported.
    """
    if isinstance(part, list):
        return 1 + sum(_expanded(one, root, path, known) for one in part)
    if not isinstance(part, dict):
        return 1
    size = 1
    for name, value in part.items():
        if name in ("$dynamicRef", "$id", "patternProperties", "unevaluatedProperties", "unevaluatedItems"):
            raise ValueError(f"{name} is not supported")
        if name == "pattern" and isinstance(value, str):
            _expression(value)
        if name != "$ref" or not isinstance(value, str):
            size += _expanded(value, root, path, known)
            continue
        if value in path:
            raise ValueError(f"the reference {value!r} is recursive, which is not supported")
        if value not in known:
            known[value] = _expanded(_referred(root, value), root, (*path, value), known)
        size += known[value]
    return min(size, 10 * MAX_SCHEMA_SIZE)


def _referred(root: Any, reference: str) -> Any:
    if not reference.startswith("#/"):
        raise ValueError(f"the reference {reference!r} is not local; local ones begin with '#/'")
    found = root
    for name in reference[2:].split("/"):
        if not isinstance(found, dict) or name not in found:
            raise ValueError(f"the reference {reference!r} names no part of the schema")
        found = found[name]
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


MAX_RULE_TEXT = 900
"""The most characters of a rule in the definition of its criterion."""


def check_rubric(criteria: Sequence[RubricCriterion], field: str = "criteria") -> Iterator[Violation]:
    """Finds invalid and repeated criteria.

    Args:
        criteria: The rubric.
        field: The path of the rubric in its request.
    """
    yield from check_distinct(field, [one.id for one in criteria])
    for index, one in enumerate(criteria):
        path = f"{field}[{index}]"
        if one.each and one.HasField("scale"):
            yield Violation(f"{path}.each", "must be absent: a criterion with a scale judges the whole")
        if one.HasField("rule"):
            if problem := rule_problem(one.rule):
                yield Violation(f"{path}.rule", problem)
            if one.HasField("scale"):
                yield Violation(f"{path}.scale", "must be absent: a criterion with a rule passes or fails")
            continue
        if not one.HasField("scale"):
            if is_blank(one.passes):
                yield Violation(f"{path}.passes", "must not be blank unless the criterion has a scale")
            continue
        for name in ("passes", "fails"):
            if getattr(one, name):
                yield Violation(f"{path}.{name}", "must be empty: the criterion has a scale")
        if is_blank(one.description) and not one.scale.anchors:
            yield Violation(f"{path}.description", "must not be blank: the scale has no anchors")
        if problem := scale_problem(one.scale):
            yield Violation(f"{path}.scale", problem)


def encode_criterion(one: RubricCriterion) -> Criterion:
    """A criterion as judges of texts get it: its texts are the definition."""
    parts = (
        one.description.strip(),
        f"Pass: {one.passes.strip()}" if one.passes else "",
        f"Fail: {one.fails.strip()}" if one.fails else "",
        describe_rule(one.rule)[:MAX_RULE_TEXT] if one.HasField("rule") else "",
    )
    encoded = Criterion(id=one.id, definition="\n".join(part for part in parts if part), each=one.each)
    if one.HasField("rule"):
        encoded.rule.CopyFrom(one.rule)
    if one.HasField("scale"):
        encoded.scale.CopyFrom(one.scale)
    return encoded


def criterion_role(one: RubricCriterion) -> Role:
    """A criterion as a role of a pair judge, which votes by it alone."""
    parts = (
        "A judge who looks only at this.",
        encode_criterion(one).definition,
        *(f"Worth {anchor.value} of {one.scale.highest}: {anchor.meaning}" for anchor in one.scale.anchors),
    )
    return Role(type=one.id, description="\n".join(parts), origin=ROLE_ORIGIN_CRITERION)
