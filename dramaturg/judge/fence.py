"""Fences around what is judged: it is data, and never instructs the judge.

Texts of a request are put into a prompt between two lines with a marker. The marker derives
from the SHA-256 of the content, so that equal requests make equal prompts (the completion cache hits) and
the content cannot hold its own end. Long content is cut, with a note that stands where it was cut and one
outside the fence. Characters that a reader cannot see, and the control tokens of chat templates, are
written as code points.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_MARKER_LENGTH = 16
_JOINERS = frozenset("\u200c\u200d")
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Letters and marks by category, but nothing is seen of them; the variation selectors can spell a hidden text.
_BLANK_SIGNS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_VARIATION_SELECTORS = range(0xE0100, 0xE01F0)
_NOT_PLAIN = re.compile(r"[^\n\t -~]")
# Servers of open models turn these into control tokens wherever they stand, a message's text included.
_CONTROL_TOKEN = re.compile(
    r"<(?=[|｜][^<>\n]{1,40}[|｜]>"
    r"|/?s>|<\s*/?SYS\s*>>|/?(?:start|end)_of_(?:turn|image|text)>|(?:bos|eos|pad|unk)>)"
    r"|\[(?=/?INST\]|/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS))\])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fenced:
    """A text between its markers, ready to be put into a prompt."""

    label: str
    """What it is, such as "candidate"."""
    text: str
    """The fence with the text in it, and where it was cut a note after it."""
    shown: int
    """How many characters of the content stand in the fence."""
    total: int
    """How many characters the content has."""
    escaped: int
    """How many of those shown are written as code points."""

    @property
    def cut(self) -> bool:
        """Whether a part of the content is not shown."""
        return self.shown < self.total


def fence(label: str, content: str, *, limit: int) -> Fenced:
    """Fences one text.

    Args:
        label: What it is, in a word or two of our own.
        content: The text.
        limit: The most characters of it that are shown.
    """
    return _fence(label, _excerpt(content, limit), total=len(content))


def fence_items(label: str, item: str, contents: Sequence[str], *, limit: int) -> Fenced:
    """Fences a numbered list. Only the longest items are cut, so that something is shown of each.

    Further lines of an item are indented: none of them can pass for an item of its own.

    Args:
        label: What the list is, such as "candidate".
        item: What an item is, such as "Step"; they are numbered from 1.
        contents: The items.
        limit: The most characters of all items together that are shown.
    """
    total = sum(map(len, contents))
    if total <= limit and _is_plain("\n".join(contents)):
        return _fence(label, _Excerpt(_numbered(item, contents), total, 0), total=total)
    allowance = _allowance([len(content) for content in contents], limit)
    excerpts = [_excerpt(content, allowance) for content in contents]
    together = _Excerpt(
        _numbered(item, [excerpt.text for excerpt in excerpts]),
        sum(excerpt.shown for excerpt in excerpts),
        sum(excerpt.escaped for excerpt in excerpts),
    )
    return _fence(label, together, total=total)


def visible(text: str) -> tuple[str, int]:
    """Writes what a reader cannot see, and control tokens, as code points: ``[U+202E]``.

    Line ends become line feeds. Tabs stay, and so do joiners beside letters that are not ASCII, where
    Persian, Hindi and emoji need them.

    Returns:
        The text, and how many characters were written as code points.
    """
    if _is_plain(text):
        return text, 0
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    hidden = 0

    def write(found: re.Match[str]) -> str:
        nonlocal hidden
        if not _hidden(found.string, found.start(), found[0]):
            return found[0]
        hidden += 1
        return _code_point(found[0])

    # A pattern skips what is plain a hundred times faster than a loop.
    shown, tokens = _CONTROL_TOKEN.subn(lambda found: _code_point(found[0]), _NOT_PLAIN.sub(write, text))
    return shown, hidden + tokens


def _is_plain(text: str) -> bool:
    """Whether a text is ASCII that is seen, in lines, and can hold no control token: most texts are."""
    return (
        text.isascii()
        and (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable())
        and "<" not in text
        and "[" not in text
    )


def _numbered(item: str, texts: Sequence[str]) -> str:
    lines = [f"{item} {number}: {text}" for number, text in enumerate(texts, start=1)]
    return "\n".join(line.replace("\n", "\n    ") for line in lines)


class _Excerpt(NamedTuple):
    text: str
    shown: int
    escaped: int


def _excerpt(content: str, limit: int) -> _Excerpt:
    text, escaped = visible(content[:limit])
    if len(content) > limit:
        text += f" [cut here: {len(content) - limit} more characters]"
    return _Excerpt(text, min(limit, len(content)), escaped)


def _fence(label: str, excerpt: _Excerpt, *, total: int) -> Fenced:
    marker = _marker(label, excerpt.text)
    text = f"[BEGIN {label} {marker}]\n{excerpt.text}\n[END {label} {marker}]"
    if excerpt.shown < total:
        text += f"\n(Only {excerpt.shown} of the {total} characters of the {label} are shown above.)"
    return Fenced(label, text, excerpt.shown, total, excerpt.escaped)


def _marker(label: str, content: str) -> str:
    """A marker that the content does not hold: the start of its hash, made longer until that is so."""
    digest, length = hashlib.sha256(f"{label}\n{content}".encode()).hexdigest(), _MARKER_LENGTH
    folded = content.casefold()
    while digest[:length] in folded:
        digest = hashlib.sha256(f"{digest}\n{content}".encode()).hexdigest()
        length = min(length + 4, len(digest))
    return digest[:length]


def _allowance(lengths: Sequence[int], limit: int) -> int:
    """The length to which the longest items are cut so that all together have at most ``limit``."""
    remaining, largest = limit, 0
    for index, length in enumerate(sorted(lengths)):
        largest = remaining // (len(lengths) - index)
        if length > largest:
            return largest
        remaining -= length
        largest = length
    return largest


def _hidden(text: str, index: int, character: str) -> bool:
    if character in _JOINERS:
        neighbours = (text[index - 1 : index], text[index + 1 : index + 2])
        return not all(neighbour > "\u007f" and neighbour not in _JOINERS for neighbour in neighbours)
    return (
        unicodedata.category(character) in _INVISIBLE_CATEGORIES
        or character in _BLANK_SIGNS
        or ord(character) in _VARIATION_SELECTORS
    )


def _code_point(character: str) -> str:
    return f"[U+{ord(character):04X}]"
