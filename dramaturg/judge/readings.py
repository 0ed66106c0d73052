r"""Reads one value, an option or a whole number, from the few words in which a model states it.

The rules are in docs/answers.md. A value with decoration ("**8**", "[[8]]", "\boxed{8}", "8/10", "PASS.") is
clear; a value with an alternative ("7 or 8", "pass/fail"), a range, a negation or a question is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

MAX_LENGTH = 2_000
"""The maximum length of a statement of one value, in characters."""

_WRAPPERS = (
    ("**", "**"),
    ("__", "__"),
    ("[[", "]]"),
    ("[", "]"),
    ("(", ")"),
    ("`", "`"),
    ("*", "*"),
    ("_", "_"),
)
_QUOTES = (
    ('"', '"'),
    ("'", "'"),
    ("\u201c", "\u201d"),
    ("\u2018", "\u2019"),
    ("\u00ab", "\u00bb"),
    ("$", "$"),
)
_LATEX = re.compile(r"\\(?:boxed|text|textbf|mathbf|mathrm|fbox)\s?\{([^{}]{0,200})\}")
_NUMBER = re.compile(
    r"(?P<number>(?!0\d)\d{1,9})(?:\.0{1,3})?(?![\d.,%]*\d)(?!%)"
    r"(?:\s?(?:/|out\s+of|of)\s?(?P<total>\d{1,9})(?!\s?/|[.,]?\d))?(?P<rest>.*)",
    re.DOTALL | re.IGNORECASE,
)
_COUNTED = re.compile(
    r"\A(?:step|turn|event|role|constraint|rating|score|number|no\.|#)\s{0,3}[:#=]?\s{0,3}(?=\w)",
    re.IGNORECASE,
)
_UNITS = re.compile(r"\s{0,3}(?:points?|stars?)\b", re.IGNORECASE)
# What may follow a stated value: the end, or a mark that begins a remark.
_REMARK = re.compile(r"\s{0,3}(?:[.,;:!(\u2014\u2013\n]|-\s|\s(?:because|since|as|for)\b)", re.IGNORECASE)
_ALTERNATIVE = re.compile(
    r"\b(?:or|between|maybe|perhaps|possibly|not|no|never|neither|but|however|although|though|unless|if|"
    r"except|almost|nearly|instead|rather|actually|wait|correction|otherwise|unsure|uncertain)\b|n't\b|n\u2019t\b"
    r"|[?/|~\u2026]|\.\.",
    re.IGNORECASE,
)
_SYNONYMS = {"tie": r"(?:tied?|ties|draw|neither|both|equal|equally\sgood)"}
_NOUNS = r"(?:text|option|response|reply|answer|candidate|summary|choice|article|dialogue)"
_BETTER = re.compile(
    r"\A\s(?:is|was|wins)\b(?:\s(?:clearly|definitely|slightly|much|far|overall|marginally|the))*"
    r"(?:\s(?:better|best|superior|stronger|preferable|preferred|winner)\b)?"
    rf"(?:\s(?:{_NOUNS}|one|overall)\b)?(?=\Z|[\s.!,;:(])",
    re.IGNORECASE,
)
_ANY_NUMBER = re.compile(r"\d{1,9}")
_WORD_NUMBERS = {
    word: str(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten".split())  # noqa: SIM905
}


def undecorated(text: str) -> str:
    """Returns a text without marks of emphasis, brackets and quotation around the whole of it."""
    stripped = _LATEX.sub(r"\1", text[: MAX_LENGTH + 1]).strip()
    changed = True
    while changed and stripped:
        changed = False
        for opening, closing in (*_WRAPPERS, *_QUOTES):
            inside = len(stripped) > len(opening) + len(closing)
            if inside and stripped.startswith(opening) and stripped.endswith(closing):
                inner = stripped[len(opening) : len(stripped) - len(closing)]
                if opening not in inner and closing not in inner:
                    stripped, changed = inner.strip(), True
        without = stripped.rstrip(".!").rstrip()
        if without and without != stripped and not without.endswith("."):
            stripped, changed = without, True
    return stripped


def _plain(text: str) -> str:
    for mark in ("**", "__", "[[", "]]"):
        text = text.replace(mark, "")
    return text


def mentions_option(text: str, options: Sequence[str]) -> bool:
    """Whether a text has one of the options as a word."""
    return _option_patterns(tuple(options))[1].search(text) is not None


def as_option(text: str, options: Sequence[str]) -> str | None:
    """Returns the one option that a text states, or None where it states none or several.

    Case, decoration and a remark after the option are ignored. Forms in "-s" and "-ed" count as the option.
    """
    if len(text) > MAX_LENGTH:
        return None
    pattern, mention = _option_patterns(tuple(options))
    plain = undecorated(_plain(text))
    found = pattern.fullmatch(plain)
    if found is None:
        return None
    rest = _BETTER.sub("", found["rest"], count=1) if options[0].isdecimal() else found["rest"]
    if rest and (not _REMARK.match(rest) or _ALTERNATIVE.search(rest) or mention.search(rest)):
        return None
    number = next(index for index in range(len(options)) if found[f"o{index}"] is not None)
    return options[number]


@lru_cache(maxsize=256)
def _option_patterns(options: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    forms = [_option_form(option) for option in options]
    marked = "|".join(rf"(?P<o{index}>{form})" for index, form in enumerate(forms))
    numeric = any(option.isdecimal() for option in options)
    noun = rf"(?:{_NOUNS}\s{{0,3}}[#:]?\s{{0,3}})?" if numeric else ""
    pattern = rf"(?:the\s)?{noun}['\"\u201c(\[]{{0,2}}(?:{marked})(?!\w)['\"\u201d)\]]{{0,2}}(?P<rest>.*)"
    flags = re.IGNORECASE | re.DOTALL
    return re.compile(pattern, flags), re.compile(rf"(?<!\w)(?:{'|'.join(forms)})(?!\w)", flags)


def _option_form(option: str) -> str:
    if option in _SYNONYMS:
        return _SYNONYMS[option]
    form = re.sub(r"\\?[-_ ]", r"[-_\\s]?", re.escape(option))
    if option.isalpha():
        return rf"{form}(?:ed|es|s)?"
    if option in _WORD_NUMBERS.values():
        word = next(word for word, number in _WORD_NUMBERS.items() if number == option)
        return rf"(?:{form}|{word})"
    return form


def as_integer(text: str, lowest: int | None = None, highest: int | None = None) -> int | None:
    """Returns the whole number that a text states, or None where it states none or several.

    A total ("8/10") must be the highest number of the scale. The range itself is not checked.

    Args:
        text: The statement of the number.
        lowest: The lowest number of the scale, if any.
        highest: The highest number of the scale, if any.
    """
    if len(text) > MAX_LENGTH:
        return None
    plain = undecorated(_plain(text))
    negative = plain.startswith("-") and plain[1:].isdecimal() and plain.isascii()
    if negative:
        return -int(plain[1:]) if len(plain) < 18 else None
    plain = _COUNTED.sub("", plain, count=1)
    plain = _WORD_NUMBERS.get(plain.casefold(), plain)
    found = _NUMBER.fullmatch(plain)
    if found is None or not found["number"].isascii():
        return None
    total = found["total"]
    if total is not None and (highest is None or int(total) != highest):
        return None
    rest = found["rest"].lstrip("])*_`\"'")
    unit = _UNITS.match(rest)
    rest = rest[unit.end() :] if unit else rest
    if rest and (not _REMARK.match(rest) or _ALTERNATIVE.search(rest) or _on_scale(rest, lowest, highest)):
        return None
    return int(found["number"])


def _on_scale(text: str, lowest: int | None, highest: int | None) -> bool:
    """Whether a text has a number of the scale, which may be meant in place of the first one."""
    return any(
        (lowest is None or int(number) >= lowest) and (highest is None or int(number) <= highest)
        for number in _ANY_NUMBER.findall(text)
    )
