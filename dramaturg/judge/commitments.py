r"""Reads the value to which a text in prose commits itself: "Rating: [[8]]", "My vote is Text 2.".

A value is read where the text is the value alone, where it follows its label, and where it is in
double brackets or in ``\boxed{}``. Reasoning, quotations and quoted lines commit to nothing. All commitments
of a text must be clear and equal; otherwise the text has no value. The rules are in docs/answers.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from dramaturg.judge.readings import as_integer, as_option, mentions_option
from dramaturg.judge.reasoning import answer_text

MAX_LENGTH = 20_000
"""The maximum length of a text that is read, in characters."""
MAX_COMMITMENTS = 50
"""The maximum number of commitments of a text."""

_LABELS = {
    "rating": r"rating|score|grade",
    "turn": r"(?:first\s)?(?:challenging\s)?turn(?:\snumber)?",
    "vote": r"vote|winner|better\s(?:text|response|reply|one)|preference",
    "verdict": r"verdict|outcome|judge?ment|decision",
}
_BEFORE = r"(?:my\s|the\s)?(?:final|overall|own)"
_AFTER = r"(?:\s?(?:is|would\sbe|:|=|\uff1a)\s?|\sof\s)(?:[:\s]{0,2})(?:a\s|an\s|the\s|turn\s)?"
# Other marks belong to the value: "Rating: /10", "Rating: <8", "Rating: -3".
_AFTER_LABEL = r"[\s:=\uff1a*_`\"'\u201c\[({$\])}]{0,8}(?:(?<=\s)(?:[-\u2013\u2014]>?|\u2192)\s)?"
_BOXED = re.compile(r"\[\[([^\[\]]{1,100})\]\]|\\boxed\s?\{((?:[^{}]|\{[^{}]{0,100}\}){1,200})\}")
_OUT_OF = re.compile(
    r"(?<![\w.,/-])\d{1,3}(?:\.\d)?\s?(?:/|out\sof)\s?\d{1,3}(?![\w/])(?![\s,;]{1,3}\d)", re.IGNORECASE
)
_SENTENCE = re.compile(r"[^.!?\n]{0,2000}+(?:\.(?=\w)[^.!?\n]{0,2000}+){0,50}[.!?]{0,3}")
_PARTS = re.compile(r"(?:[^.!?]|[.!?](?![,;]?\s))++[.!?]?[,;]?")
_CLOUDED = re.compile(
    r"\b(?:not|no|never|if|unless|could|might|may|maybe|perhaps|would\shave|cannot|claims?|claimed|says|said|asks?|"
    r"demands?|wants?|writes|wrote|states|quotes?|initially|previously|first\simpression|at\sfirst|draft|"
    r"tempted|consider\w*|example|instead|rather|than|less|more|least|most|under|over|above|below|almost|nearly|"
    r"candidate'?s|author|someone|others?)\b|n't\b|n\u2019t\b|\?|\ue002",
    re.IGNORECASE,
)
_DECIDES = re.compile(
    r"\b(?:better|best|prefer\w*|choose|winner|wins|vote\sfor|superior|stronger)\b", re.IGNORECASE
)
_VALUE_ALONE = re.compile(
    r"\W{0,10}+(?:(?:no|or|and|actually|rather)\W{1,3})?(?:(?:text|option|turn)\s)?\w{1,20}+(?:\s?/\s?\d{1,9})?\W{0,10}+",
    re.IGNORECASE,
)
_SECOND = re.compile(r"[\s.,;\]}$*]{0,5}(?:or\b|and\b|/(?!\s?10\b)|-\s?\d)", re.IGNORECASE)
_SECOND_NUMBER = re.compile(r"[\s.,;]{0,5}(?:or|and|no|actually|rather)\b\W{1,5}\d", re.IGNORECASE)
_CORRECTION = re.compile(r"\A(?:\W{0,5}(?:no|or|and|actually|rather)\b\W{1,3}){1,2}", re.IGNORECASE)
_MARK = "\ue001"
_UNPAIRED = "\ue002"
"""Marks a passage that may be quoted: a line with an odd number of quotation marks is ambiguous."""
_OPENING_MARKS = " \t\ufeff\u200b*_`#\"'\u201c\u2018\u00ab"

Value = TypeVar("Value", int, str)


def committed_integer(text: str, label: str, lowest: int, highest: int) -> int | None:
    """Returns the whole number to which a text commits itself, or None where it is unclear or off the scale.

    Args:
        text: The text of a model.
        label: The name of the value, for example "rating".
        lowest: The lowest number of the scale.
        highest: The highest number of the scale.
    """

    def read(statement: str) -> int | None:
        number = as_integer(statement, lowest, highest)
        return number if number is not None and lowest <= number <= highest else None

    def mentions(statement: str) -> bool:
        return any(character.isdigit() for character in statement)

    def totals(line: str) -> Iterator[tuple[int, str]]:
        if label in {"rating", "score"}:
            for found in _OUT_OF.finditer(line):
                has_second = _SECOND_NUMBER.match(line, found.end())
                yield found.start(), f"{found[0]} or" if has_second else found[0]

    return _committed(text, label, read, mentions, totals)


def committed_option(text: str, label: str, options: Sequence[str]) -> str | None:
    """Returns the option to which a text commits itself, or None where it is unclear.

    Args:
        text: The text of a model.
        label: The name of the value, for example "verdict".
        options: The options.
    """

    def decisions(line: str) -> Iterator[tuple[int, str]]:
        for sentence in _SENTENCE.finditer(line):
            said = sentence[0].strip()
            if said and _DECIDES.search(said) and mentions_option(said, options):
                yield sentence.end(), said

    return _committed(
        text,
        label,
        lambda statement: as_option(statement, options),
        lambda statement: mentions_option(statement, options),
        decisions if any(option.isdecimal() for option in options) else lambda _: iter(()),
    )


def _committed(
    text: str,
    label: str,
    read: Callable[[str], Value | None],
    mentions: Callable[[str], bool],
    others: Callable[[str], Iterator[tuple[int, str]]],
) -> Value | None:
    if len(text) > MAX_LENGTH:
        return None
    answer: str = answer_text(text)
    whole: Value | None = read(_label_alone(label).sub("", answer, count=1))
    if whole is not None:
        return whole
    announced: list[Value | None] = []
    remarked: list[Value | None] = []
    lines = [*_own_lines(answer)]
    last = _label_alone(label).sub("", _CORRECTION.sub("", _last_part(lines)), count=1)
    announced += [value for value in (read(last),) if value is not None]
    for line in lines:
        for start, statement, is_announced in _statements(line, label, others):
            value = read(statement)
            if value is None and not mentions(statement):
                continue
            clouded = _CLOUDED.search(_clause(line[:start]) if is_announced else _sentence(line, start))
            (announced if is_announced else remarked).append(None if clouded else value)
            if len(announced) + len(remarked) > MAX_COMMITMENTS:
                return None
    # An unclear remark beside a clear announcement is a part of the reasons.
    values = {*announced, *((value for value in remarked if value is not None) if announced else remarked)}
    return values.pop() if len(values) == 1 else None


def _last_part(lines: Sequence[str]) -> str:
    """The last sentence of a text."""
    parts = _PARTS.findall(next((line for line in reversed(lines) if line.strip()), ""))
    return parts[-1].strip() if parts else ""


def _statements(
    line: str, label: str, others: Callable[[str], Iterator[tuple[int, str]]]
) -> Iterator[tuple[int, str, bool]]:
    for part in _PARTS.finditer(line):
        if _VALUE_ALONE.fullmatch(part[0]):
            yield part.start(), _CORRECTION.sub("", part[0]), True
    for match in _announcement(label).finditer(line):
        rest = line[match.end() : match.end() + 300]
        sentence = re.split(r"(?<=[.!?])\s", rest, maxsplit=1)[0]
        yield match.start(), sentence, True
    for match in _BOXED.finditer(line):
        stated = match[1] or match[2]
        yield match.start(), f"{stated} or" if _SECOND.match(line, match.end()) else stated, True
        rest = line[match.end() :].lstrip(" \t,;$*}")
        if _VALUE_ALONE.fullmatch(rest):
            yield match.end(), rest, True
    for start, statement in others(line):
        yield start, statement, False


@lru_cache(maxsize=64)
def _announcement(label: str) -> re.Pattern[str]:
    name = _LABELS.get(label, re.escape(label).replace("_", r"[_\s]"))
    return re.compile(rf"(?<![\w-])(?:{name}|final\sanswer){_AFTER}", re.IGNORECASE)


@lru_cache(maxsize=64)
def _label_alone(label: str) -> re.Pattern[str]:
    name = _LABELS.get(label, re.escape(label).replace("_", r"[_\s]"))
    return re.compile(
        rf"\A[^\w>]{{0,5}}(?:{_BEFORE}\s)?(?:{name})(?:{_AFTER_LABEL})(?:is\s)?(?=\W{{0,5}}\w)", re.IGNORECASE
    )


def _own_lines(text: str) -> Iterator[str]:
    """Yields the lines of a text that are not quoted, without emphasis and without quotations within them."""
    for line in text.splitlines():
        if line.lstrip(_OPENING_MARKS).startswith(">"):
            continue
        plain = line.replace("**", "").replace("__", "").replace("`", "").strip(" \t#*")
        yield _without_quotations(plain)


def _without_quotations(line: str) -> str:
    """Replaces quoted passages of several words; a value alone in quotation marks stays."""
    if line.count('"') % 2:
        before, mark, after = line.rpartition('"')
        return before.replace('"', f'"{_UNPAIRED}') + mark + after

    def hide(found: re.Match[str]) -> str:
        return found[0] if len(found[0].split()) < 2 else _MARK

    return _QUOTATION.sub(hide, line)


_QUOTATION = re.compile('"[^"]*+"|\u201c[^\u201d]*+\u201d|\u00ab[^\u00bb]*+\u00bb')


def _clause(before: str) -> str:
    """The part of a sentence before an announcement."""
    return re.split(r"[.!;\n]\s|,\sso\s|\btherefore\b|\bbut\b|:\s", before[-300:])[-1]


def _sentence(line: str, position: int) -> str:
    start = max(line.rfind(mark, 0, position) for mark in (". ", "! ", "? ")) + 1
    end = min((at for mark in ".!?" if (at := line.find(mark + " ", position)) >= 0), default=len(line))
    return line[max(start, position - 300) : min(end, position + 300)]
