r"""Reads the value of a short answer, an option or a whole number, by a table of forms (``FORMS``).

Reasoning and quoted lines hold no value. The value of an answer is that of its last form, provided that every
form of the answer states the same value and that nothing after the last one names another value. All other
answers have no value: no word of a language decides one. The rules are in docs/reference/answers.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from dramaturg.judge.reasoning import blanked

MAX_LENGTH = 20_000
"""The maximum length of an answer that is read, in characters, without its reasoning."""
NOUNS = ("text", "option", "turn")
"""The nouns by which prompts number what an answer chooses from: "Option 1" is the option 1."""
EXPLAINED = r"[;:–—](?=\s)|\s[-–—]\s|\s?\("
"""The pattern of the marks between a word, for example "pass", and its explanation in the same sentence."""
CONTINUED = rf"{EXPLAINED}|,(?=\s)"
"""The same for a word that is a sentence of its own, for example "yes"."""


class Place(Enum):
    """Where a form counts."""

    ANYWHERE = auto()
    SENTENCE = auto()
    """At the start of a sentence that no quotation mark precedes in its line."""
    LINE = auto()
    """As a whole line."""
    FIRST = auto()
    """At the start of the answer."""


class Form(NamedTuple):
    """A form in which answers state their value."""

    name: str
    pattern: str
    """A pattern with VALUE, LABEL (the value's name or "answer"), OPENING and END (marks around a value)."""
    place: Place


FORMS = (
    Form("bracketed", r"\[\[\s?VALUE\s?\]\]", Place.ANYWHERE),
    Form("boxed", r"\\boxed\s?\{(?:\\\w{4,6}\s?\{)?\s?VALUE\s?\}{1,2}", Place.ANYWHERE),
    Form(
        "labelled",
        r"OPENING(?:(?:the|my)\s)?(?:final\s)?LABEL\s?(?:[:=：]|is\b)OPENING VALUE END",
        Place.SENTENCE,
    ),
    Form("alone", r"OPENING VALUE END\Z", Place.LINE),
    # "1. Preheat the oven." begins a list.
    Form("first", r"(?!\d+[.)]\Z)OPENING VALUE END", Place.FIRST),
)
"""The forms, by precedence: a sentence is read in the first form that it has."""

Value = TypeVar("Value")

_PARTS = {
    "OPENING": r"(?:[-*•]\s{1,3})?[\s\"'“”‘’«»(*_#$]{0,8}",
    "END": r"[\"'“”‘’»)*_$.!]{0,6}(?:\Z|(?:REMARK))",
}
_BETWEEN = r"[\s.,:;()*_–—-]{1,5}"
_JOINT = r"[\s_-]{0,3}"
_JOINTS = re.compile(r"[\s_-]+")
_NUMBERED = rf"(?:(?:{'|'.join(NOUNS)})\s{{0,3}})?"
_NUMBER = re.compile(r"(?<![\w./])\d{1,9}(?![\w%])")
_EMPHASIS = re.compile(r"\*\*|__|`")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_QUOTATION_MARK = re.compile('["“”„«»]')
_QUOTED_LINE = re.compile(r"[\s\ufeff\u200b*_`#\"'“‘«]*>")


@dataclass(frozen=True, eq=False)
class Values(Generic[Value]):
    """The values that an answer may have, and how they are written."""

    pattern: str
    """The pattern of one value."""
    read: Callable[[str], Value | None]
    """Makes the value of a text that matches the pattern. None: it is off the scale."""
    mentions: Callable[[str], Iterator[Value]]
    """Finds every value that a text names."""
    remark: str = ""
    """The pattern of the mark between a value and a remark in its sentence. Empty: no remark may follow.

    A remark may qualify a name or a number: "Option 1, which is closed".
    """

    def value_of(self, text: str, label: str = "") -> Value | None:
        """Returns the value to which an answer commits itself, or None where it is unclear.

        Args:
            text: The text of a model.
            label: The name of the value in the form of the answer, for example "rating".
        """
        answer = blanked(text).strip()
        if len(answer) > MAX_LENGTH:
            return None
        sentences = [*_sentences(answer)]
        patterns = _patterns(self.pattern, self.remark, label)
        stated: set[Value | None] = set()
        last, end = 0, 0
        for index, sentence in enumerate(sentences):
            for match in _statements(sentence, patterns, is_first=index == 0):
                stated.add(self._stated(match["value"]))
                last, end = index, match.end("value")
        value = stated.pop() if len(stated) == 1 else None
        if value is None:
            return None
        after = [sentences[last].text[end:], *(sentence.text for sentence in sentences[last + 1 :])]
        line = sentences[last].line
        is_doubted = any("?" in sentence.text for sentence in sentences[last:] if sentence.line == line)
        return None if is_doubted or self.name_other("\n".join(after), value) else value

    def name_other(self, text: str, value: object) -> bool:
        """Whether a text names a value other than ``value``."""
        return any(named != value for named in self.mentions(text))

    def _stated(self, text: str) -> Value | None:
        """The value of a statement, which may repeat it: "1) Option 1"."""
        found = {self.read(match[0]) for match in re.finditer(self.pattern, text, re.IGNORECASE)}
        return found.pop() if len(found) == 1 else None


def options_of(spellings: Mapping[str, Value], remark: str = "") -> Values[Value]:
    """The values of options.

    Args:
        spellings: The value of each spelling. Case, spaces, hyphens and underscores in it do not matter.
        remark: The pattern of the mark between an option and a remark in its sentence. Empty: none.
    """
    values = {_folded(spelling): value for spelling, value in spellings.items() if _folded(spelling)}
    numbers = {spelling: value for spelling, value in values.items() if spelling.isdecimal()}
    patterns = [
        (_NUMBERED if _folded(spelling) in numbers else "") + _spelling(spelling)
        for spelling in sorted(spellings, key=len, reverse=True)
        if _folded(spelling)
    ]
    values |= {noun + number: value for number, value in numbers.items() for noun in NOUNS}
    pattern = "|".join(patterns) or r"(?!)"
    mention = re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE)
    return Values(
        pattern,
        lambda text: values.get(_folded(text)),
        lambda text: (values[_folded(found)] for found in mention.findall(text)),
        remark,
    )


@lru_cache(maxsize=256)
def options(names: tuple[str, ...]) -> Values[str]:
    """The values of options that are written as they are named, or as "passed" for "pass"."""
    endings = ("s", "es", "d", "ed")
    inflected = {name + ending: name for name in names if name.isalpha() for ending in endings}
    remark = "" if any(name.isdecimal() for name in names) else EXPLAINED
    return options_of({**inflected, **{name: name for name in names}}, remark)


def option_of(text: str, names: Sequence[str]) -> str | None:
    """Returns the option that a text states, or None where it is unclear."""
    return options(tuple(names)).value_of(text)


@lru_cache(maxsize=256)
def scale(lowest: int | None, highest: int | None) -> Values[int]:
    """The whole numbers between two bounds, both included; None: without the bound.

    A number may have its total, which is the highest one: "8/10", "8 out of 10".
    """

    def on_scale(number: int) -> bool:
        return (lowest is None or lowest <= number) and (highest is None or number <= highest)

    def read(text: str) -> int | None:
        number = int(re.findall(r"\d+", text)[0])
        return number if on_scale(number) else None

    total = "" if highest is None else rf"(?:\s?(?:/|out\sof)\s?{highest})?"
    return Values(
        rf"{_NUMBERED}(?!0\d)\d{{1,9}}(?:\.0{{1,3}})?{total}(?![%/\d]|[.,-]\d|\s?/)",
        read,
        lambda text: filter(on_scale, map(int, _NUMBER.findall(text))),
    )


class _Sentence(NamedTuple):
    """A sentence of an answer, without marks of emphasis."""

    text: str
    line: int
    """The number of its line."""
    is_line: bool
    """Whether it is the whole line."""
    is_after_quotation: bool
    """Whether a quotation mark precedes it in its line: it may be quoted."""


def _sentences(answer: str) -> Iterator[_Sentence]:
    for number, line in enumerate(answer.splitlines()):
        plain = _EMPHASIS.sub("", line).strip(" \t\ufeff")
        if not plain or _QUOTED_LINE.match(plain):
            continue
        texts = _SENTENCE_END.split(plain)
        is_quoted = False
        for text in texts:
            yield _Sentence(text, number, len(texts) == 1, is_quoted)
            is_quoted = is_quoted or _QUOTATION_MARK.search(text) is not None


def _statements(
    sentence: _Sentence, patterns: Mapping[Form, re.Pattern[str]], *, is_first: bool
) -> Sequence[re.Match[str]]:
    """The statements of a value in a sentence, in the first form that it has."""
    counts = {
        Place.ANYWHERE: True,
        Place.SENTENCE: not sentence.is_after_quotation,
        Place.LINE: sentence.is_line,
        Place.FIRST: is_first,
    }
    for form, pattern in patterns.items():
        if form.place is Place.ANYWHERE:
            found = [*pattern.finditer(sentence.text)]
        else:
            match = pattern.match(sentence.text) if counts[form.place] else None
            found = [match] if match else []
        if found:
            return found
    return ()


@lru_cache(maxsize=256)
def _patterns(pattern: str, remark: str, label: str) -> Mapping[Form, re.Pattern[str]]:
    one = rf"(?<![\w.,/<-])(?:{pattern})(?!\w)"
    parts = {
        **_PARTS,
        "LABEL": f"(?:answer|{_spelling(label)})" if label else "answer",
        "VALUE": rf"(?P<value>{one}(?:{_BETWEEN}{one})*+)",
        "REMARK": remark or r"(?!)",
    }
    return {form: re.compile(_filled(form.pattern, parts), re.IGNORECASE) for form in FORMS}


def _filled(pattern: str, parts: Mapping[str, str]) -> str:
    filled = re.sub(r"OPENING|LABEL|END", lambda found: parts[found[0]], pattern.replace(" ", ""))
    return re.sub(r"REMARK|VALUE", lambda found: parts[found[0]], filled)


def _spelling(text: str) -> str:
    return _JOINT.join(map(re.escape, filter(None, _JOINTS.split(text))))


def _folded(text: str) -> str:
    return _JOINTS.sub("", text.casefold())
