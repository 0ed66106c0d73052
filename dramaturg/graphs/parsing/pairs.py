"""Rewrites edges that are written as pairs, "(1, 2)", "from 1 to 2" or "| 1 | 2 |", as "1 -> 2".

A line of pairs alone, beside a label with a colon or an equals sign, is one; pairs in prose stay as they are.
The rewritten text has the length of the text, so that positions keep their meaning.
"""

from __future__ import annotations

import re

_NAME = r"(?:(?:step|event|node)[ \t_]{0,3})?\d{1,9}"
_TEXT = r"\"[^\"\n]{1,500}\"|'[^'\n]{1,500}'"
_PAIR = rf"[(\[]\s{{0,3}}(?:{_NAME}|{_TEXT})\s{{0,3}},\s{{0,3}}(?:{_NAME}|{_TEXT})\s{{0,3}}[)\]]"
_ENDS = re.compile(
    rf"[(\[]\s{{0,3}}({_NAME}|{_TEXT})\s{{0,3}},\s{{0,3}}({_NAME}|{_TEXT})\s{{0,3}}[)\]]", re.IGNORECASE
)
_MARK = r"(?:[-*•][ \t]{1,4}|\d{1,4}[.)][ \t]{1,4})?"
_LINE_OF_PAIRS = re.compile(
    r"^(?P<label>[ \t]{0,20}(?:[*_]{0,2}\w[\w ]{0,30}[*_]{0,2}[ \t]?[:=][*_]{0,2}[ \t]{0,4})?"
    rf"{_MARK})"
    rf"(?P<pairs>[\[({{]?(?:{_PAIR}[ \t]{{0,4}}[,;]?[ \t]{{0,4}}){{1,2000}}[\])}}]?[.,;]?)[ \t]{{0,20}}$",
    re.IGNORECASE | re.MULTILINE,
)
_FROM_TO = re.compile(
    rf"^(?P<label>[ \t]{{0,20}}{_MARK}(?:edge[ \t]{{1,3}})?)"
    rf"from:?[ \t]{{1,4}}(?P<source>{_NAME})(?:,?[ \t]{{1,4}}to:?[ \t]{{1,4}})(?P<target>{_NAME})"
    rf"(?=[ \t]{{0,4}}[.,;]?[ \t]{{0,4}}$)",
    re.IGNORECASE | re.MULTILINE,
)
_TABLE_ROW = re.compile(
    rf"^[ \t]{{0,20}}\|[ \t]{{0,20}}(?P<source>{_NAME})[ \t]{{0,20}}"
    rf"\|[ \t]{{0,20}}(?P<target>{_NAME})[ \t]{{0,20}}\|[ \t]{{0,20}}$",
    re.IGNORECASE | re.MULTILINE,
)


def with_arrows(text: str) -> str:
    """The text with an arrow in each pair, of the same length."""
    text = _LINE_OF_PAIRS.sub(
        lambda line: line["label"] + _ENDS.sub(_pair, _unwrapped(line["pairs"])) + _padding(line), text
    )
    text = _FROM_TO.sub(
        lambda found: found["label"] + _arrow(found, len(found[0]) - len(found["label"])), text
    )
    return _TABLE_ROW.sub(lambda found: _arrow(found, len(found[0])), text)


def _unwrapped(pairs: str) -> str:
    """Pairs without the brackets of their list: "[(1, 2), (2, 3)]"."""
    if pairs[0] in "[({" and pairs[1:].lstrip()[:1] in "[(":
        end = max(pairs.rfind(mark) for mark in "])}")
        return f" {pairs[1:end]} {pairs[end + 1 :]}"
    return pairs


def _pair(found: re.Match[str]) -> str:
    return f"{found[1]}->{found[2]}".ljust(len(found[0]))


def _arrow(found: re.Match[str], length: int) -> str:
    return f"{found['source']}->{found['target']}".ljust(length)


def _padding(line: re.Match[str]) -> str:
    return " " * (len(line[0]) - len(line["label"]) - len(line["pairs"]))
