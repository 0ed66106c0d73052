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
_KEYCAP, _KEYCAP_BASES = "\u20e3", frozenset("0123456789#*")
_NOT_PLAIN = re.compile(r"[^\n\t -~]+")
_BLANK = re.compile(f"[{''.join(_BLANK_SIGNS)}\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_ESCAPE = re.compile(r"\[(?=U\+[0-9A-F]{4,6}\])")
# Names of control tokens: boundaries of texts and turns, reasoning, tools, code, images, reserved numbers.
_NAMES = (
    r"(?:[bes]o[sptdmahi]|pad|unk|[gs]?mask|cls|sep|suf|mid)(?:[_\u2581 -]?(?:token|id))?"
    r"|(?:start|end|begin)_?of_?\w{1,20}|(?:start|end)_header_id|(?:header|turn)_(?:start|end)"
    r"|think|thinking|thoughts?|reasoning"
    r"|tool_?(?:calls?|results?|responses?|outputs?|content)|function_?(?:calls?|results?|responses?)"
    r"|available_tools|arg_(?:key|value)"
    r"|(?:unused|reserved|special|extra|loc|seg|mask)[a-z_:-]{0,20}+\d{1,5}"
    r"|fim[_-]\w{1,20}|(?:issue|jupyter|commit)_\w{1,20}|repo_?name|gh_stars|file_sep|empty_output"
    r"|image|im(?:age|g)_(?:soft_token|context|placeholder|break|end)"
)
# Names that only square brackets make control tokens: in angle brackets they are tags and placeholders.
_SQUARE_NAMES = (
    r"inst|img|args|call_id|prefix|middle|suffix|(?:begin_)?audio|transcribe|multimodal"
    r"|system_prompt|model_settings"
)
# Servers of open models convert these to control tokens, even within the text of a message. The patterns
# describe shapes: any name between bars and brackets, and certain names in plain brackets, as text and code
# have those too. They match lower case in compatibility forms. Each consumes one character, so that tokens
# within tokens are found.
_CONTROL_TOKEN = re.compile(
    # <|im_end|>  <|turn>  <turn|>  <|dsml|invoke>
    r"<(?=/?+(?:\|(?:(?=\S)[^<>\n]{1,60}+(?<=\S\|)>|[\w|:./\u2581-]{1,40}+>)|[\w:./\u2581-]{1,40}+\|>)"
    # <[fim-prefix]>  ]<]image[>[  <<sys>>  <s>
    r"|\[[\w\u2581 -]{1,40}+\]>|\][\w ]{1,40}+\[>|<\s{0,20}+/?+sys\s{0,20}+>>|/?+s>"
    # <seed:eos>  </minimax:tool_call>  <eos>  <extra_id_1>
    r"|(?=/?+[\w\u2581: -]{3,80}+>)/?+"
    rf"(?:seed:\w{{1,40}}+|(?:\w{{1,20}}+:)?+(?:{_NAMES})|[a-z_]{{2,40}}+(?<=_)\d{{1,5}}+|mask:\d{{1,5}})>)"
    # [|endofturn|]  [eos]  [/inst]
    r"|\[(?=/?+\|[\w\u2581 -]{1,40}+\|\]"
    rf"|(?=[\w\u2581/: -]{{3,80}}+\])/?+(?:{_NAMES}|{_SQUARE_NAMES})\])"
    # [e~[  ]~b]  ]~!b[  ]!p~[  The tilde is escaped, as the brackets may be those of an escape.
    r"|~(?:(?<=\[\w~)(?=\[)|(?<=\]!\w~)(?=\[)|(?<=\]~)(?=!?\w[\[\]]))"
    # >>title<<  \u25c1think\u25b7  |dsml|  /nothink
    r"|>(?=>[a-z]\w{1,40}+<<)|\u25c1(?=/?\w{1,40}+\u25b7)|\|(?=dsml\|)|/(?=no_?think)"
)
# Subscripts in code. Of the tokens, only one is a lower-case word.
_SUBSCRIPT = re.compile(r"(?<=[\w)\]])\[(?!multimodal)[a-z]+\]")
# Invisible, but kept beside characters that need them: joiners and variation selectors.
_KEPT = frozenset({*_JOINERS, *"\u180b\u180c\u180d\u180f", *map(chr, range(0xFE00, 0xFE10))})
_UNSEEN = re.compile(f"[{''.join(sorted(_KEPT))}]")


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
    return _fence(label, _items(item, contents, limit), total=sum(map(len, contents)))


def list_items(label: str, item: str, contents: Sequence[str], *, limit: int) -> Fenced:
    """Numbers a list of instructions, one line each, without a fence.

    No item has a line of its own, so that none can look like a marker or another item.

    Args:
        label: The label of the list, for notes on what is truncated.
        item: The label of an item, for example "Role". Items are numbered from 1.
        contents: The items. Line ends and repeated spaces become single spaces.
        limit: The maximum number of shown characters of all items together.
    """
    lines = [" ".join(content.split()) for content in contents]
    excerpt = _items(item, lines, limit)
    return Fenced(label, excerpt.text, excerpt.shown, sum(map(len, lines)), excerpt.escaped)


def visible(text: str) -> tuple[str, int]:
    """Writes invisible characters and the first characters of control tokens as code points: ``[U+202E]``.

    A text that holds such a code point already has its bracket escaped, so that the original can be restored.
    Line ends become line feeds. Tabs stay. Joiners beside non-ASCII letters stay, as Persian, Hindi and emoji
    need them.

    Returns:
        The text, and the number of characters written as code points.
    """
    is_ascii = _is_visible_ascii(text)
    if is_ascii and not _may_hold_token(text):
        return text, 0
    text = _ESCAPE.sub(_code_point_of, text.replace("\r\n", "\n").replace("\r", "\n"))
    if not is_ascii:
        text = _NOT_PLAIN.sub(_visible_run, text)
    while starts := _token_starts(text):
        text = _escaped(text, starts)
        # The brackets of an escape may complete a token with a tilde, and no other.
        if "~" not in text and "\uff5e" not in text:
            break
    return text, len(_ESCAPE.findall(text))


def _is_plain(text: str) -> bool:
    """Whether a text is visible ASCII without control tokens, as most texts are."""
    return _is_visible_ascii(text) and not _may_hold_token(text)


def _is_visible_ascii(text: str) -> bool:
    return text.isascii() and (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable())


def _may_hold_token(text: str) -> bool:
    return "<" in text or "[" in text or "~" in text or "/" in text


def _visible_run(found: re.Match[str]) -> str:
    run = found[0]
    if run.isprintable() and not _BLANK.search(run):
        return run
    text, start = found.string, found.start()
    return "".join(
        [
            _code_point(character) if _hidden(text, index, character) else character
            for index, character in enumerate(run, start)
        ]
    )


def _token_starts(text: str) -> list[int]:
    """Returns the indexes of the characters that make control tokens, also of those in compatibility forms.

    A lower-case word in square brackets after a name is a subscript: ``a[mask]``.
    """
    folded, indexes = text.lower(), None
    if not text.isascii():
        compatible = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold()
        plain = text.casefold()
        if not _CONTROL_TOKEN.search(plain) and (
            compatible == plain or not _CONTROL_TOKEN.search(compatible)
        ):
            return []
        forms = [unicodedata.normalize("NFKC", _UNSEEN.sub("", character)).casefold() for character in text]
        indexes = [index for index, form in enumerate(forms) for _ in form]
        folded = "".join(forms)
    starts = (found.start() for found in _CONTROL_TOKEN.finditer(folded))
    places = dict.fromkeys(starts if indexes is None else map(indexes.__getitem__, starts))
    return [place for place in places if not _SUBSCRIPT.match(text, place)]


def _escaped(text: str, indexes: Sequence[int]) -> str:
    parts, end = [], 0
    for index in indexes:
        parts += [text[end:index], _code_point(text[index])]
        end = index + 1
    return "".join([*parts, text[end:]])


def _numbered(item: str, texts: Sequence[str]) -> str:
    lines = [f"{item} {number}: {text}" for number, text in enumerate(texts, start=1)]
    return "\n".join(line.replace("\n", "\n    ") for line in lines)


def _items(item: str, contents: Sequence[str], limit: int) -> _Excerpt:
    total = sum(map(len, contents))
    if total <= limit and _is_plain("\n".join(contents)):
        return _Excerpt(_numbered(item, contents), total, 0)
    share = largest_share([len(content) for content in contents], limit)
    excerpts = [_excerpt(content, share) for content in contents]
    return _Excerpt(
        _numbered(item, [excerpt.text for excerpt in excerpts]),
        sum(excerpt.shown for excerpt in excerpts),
        sum(excerpt.escaped for excerpt in excerpts),
    )


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


def largest_share(lengths: Sequence[int], limit: int) -> int:
    """Returns the largest common length of truncated texts for a total of at most ``limit``."""
    remaining, largest = limit, 0
    for index, length in enumerate(sorted(lengths)):
        largest = remaining // (len(lengths) - index)
        if length > largest:
            return largest
        remaining -= length
        largest = length
    return largest


def _hidden(text: str, index: int, character: str) -> bool:
    if character not in _KEPT:
        return (
            unicodedata.category(character) in _INVISIBLE_CATEGORIES
            or character in _BLANK_SIGNS
            or ord(character) in _VARIATION_SELECTORS
        )
    before, after = text[index - 1 : index], text[index + 1 : index + 2]
    if character in _JOINERS:
        return not all(neighbour > "\u007f" and neighbour not in _JOINERS for neighbour in (before, after))
    chosen = before > "\u007f" and before not in _KEPT
    return not (chosen or (before in _KEYCAP_BASES and after == _KEYCAP))


def _code_point_of(found: re.Match[str]) -> str:
    return _code_point(found[0])


def _code_point(character: str) -> str:
    return f"[U+{ord(character):04X}]"
