"""Fences around judged texts, which mark them as data and not as instructions.

A prompt shows a text of a request between two marker lines. The marker derives from the SHA-256 of the
content, so that equal requests make equal prompts (and hit the completion cache) and the content cannot
contain its own end marker. Long content is truncated, with a note at the cut and one outside the fence.
Invisible characters and the control tokens of chat templates are written as code points.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_MARKER_LENGTH = 8
_JOINERS = frozenset("\u200c\u200d")
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Invisible despite their category (letters, marks). Variation selectors can encode hidden text.
_BLANK_SIGNS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_VARIATION_SELECTORS = range(0xE0100, 0xE01F0)
_NOT_PLAIN = re.compile(r"[^\n\t -~]")
# Servers of open models convert these to control tokens, even within the text of a message.
_CONTROL_TOKEN = re.compile(
    r"<(?=[|｜][^<>\n]{1,40}[|｜]>"
    r"|/?s>|<\s{0,20}/?SYS\s{0,20}>>|/?(?:start|end)_of_(?:turn|image|text)>|(?:bos|eos|pad|unk|mask|cls|sep)>"
    r"|/?(?:think|thinking|thoughts?|reasoning|seed:think|tool_(?:calls?|response|result)|function_calls?)>"
    r"|[se]op>|unused_?\d{1,5}>)"
    r"|\[(?=/?INST\]|/?THINK\]|[gs]?MASK\]|/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS))\]"
    r"|unused\d{1,5}\])"
    r"|\u25c1(?=/?think\u25b7)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fenced:
    """A text between its markers, for a prompt."""

    label: str
    """The label, for example "candidate"."""
    text: str
    """The fence with the text, and a note after it where the text is truncated."""
    shown: int
    """The number of characters of the content within the fence."""
    total: int
    """The number of characters of the content."""
    escaped: int
    """The number of shown characters that are written as code points."""

    @property
    def cut(self) -> bool:
        """Whether the content is truncated."""
        return self.shown < self.total


def fence(label: str, content: str, *, limit: int) -> Fenced:
    """Fences one text.

    Args:
        label: A label of one or two words, not from the request.
        content: The text.
        limit: The maximum number of shown characters.
    """
    return _fence(label, _excerpt(content, limit), total=len(content))


def fence_items(label: str, item: str, contents: Sequence[str], *, limit: int) -> Fenced:
    """Fences a numbered list. Only the longest items are truncated, so that a part of each is shown.

    Continuation lines of an item are indented, so that none of them looks like an item.

    Args:
        label: The label of the list, for example "candidate".
        item: The label of an item, for example "Step". Items are numbered from 1.
        contents: The items.
        limit: The maximum number of shown characters of all items together.
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
    """Writes invisible characters and control tokens as code points: ``[U+202E]``.

    Line ends become line feeds. Tabs stay. Joiners beside non-ASCII letters stay, as Persian, Hindi and emoji
    need them.

    Returns:
        The text, and the number of characters written as code points.
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

    # A pattern skips plain text about a hundred times faster than a loop.
    shown, tokens = _CONTROL_TOKEN.subn(lambda found: _code_point(found[0]), _NOT_PLAIN.sub(write, text))
    return shown, hidden + tokens


def _is_plain(text: str) -> bool:
    """Whether a text is visible ASCII without control tokens, as most texts are."""
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
    """Returns the shortest prefix of the hash of the content that makes a marker absent from the content."""
    digest, length = hashlib.sha256(f"{label}\n{content}".encode()).hexdigest(), _MARKER_LENGTH
    folded = content.casefold()
    while digest[:length] in folded:
        digest = hashlib.sha256(f"{digest}\n{content}".encode()).hexdigest()
        length = min(length + 4, len(digest))
    return digest[:length]


def _allowance(lengths: Sequence[int], limit: int) -> int:
    """Returns the length of truncated items for a total of at most ``limit``."""
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
