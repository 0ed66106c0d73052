"""Separates a model's reasoning from its answer.

Models that reason mark it in the text in many ways: tags, with or without an opening one where the chat
template wrote it, and channels (OpenAI's harmony format). A mark counts at the start of the text or of a line
only, so that an answer that quotes one is left whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<thoughts>", "</thoughts>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|thinking_start|>", "<|thinking_end|>"),
)
_MARK_WORDS = ("think", "THINK", "thought", "reasoning")
"""Every tag has one of them. Most answers have none, and need no search for tags."""
_CLOSING = dict(_TAGS)
_ANY_OPENING = "|".join(re.escape(opening) for opening, _ in _TAGS)
_OPENING = re.compile(rf"^[^\S\n]*({_ANY_OPENING})", re.MULTILINE)
_NEXT_OPENING = re.compile(rf"\s*({_ANY_OPENING})")
_ORPHAN = re.compile("|".join(re.escape(closing) for _, closing in _TAGS))
_WRAPPERS = re.compile(
    r"<\|(?:begin_of_solution|end_of_solution|START_RESPONSE|END_RESPONSE|START_TEXT|END_TEXT)\|>"
)
_CHANNEL = re.compile(
    r"(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*(?P<name>\w+)[^<]*"
    r"(?:<\|constrain\|>[^<]*)?<\|message\|>(?P<text>.*?)"
    r"(?P<end><\|end\|>|<\|return\|>|<\|call\|>|(?=<\|start\|>|<\|channel\|>)|\Z)",
    re.DOTALL,
)
_FINAL_CHANNEL = "final"
_ASSISTANT_FINAL = re.compile(r"\Aanalysis(?P<reasoning>.*?)assistantfinal(?P<text>.*)\Z", re.DOTALL)
_JSON_START = ("{", "[", '"', "```")


@dataclass(frozen=True, slots=True)
class Separated:
    """A text without the reasoning in it."""

    spans: tuple[tuple[int, int], ...]
    """The parts of the text that are the answer, as offsets into it."""
    text: str
    """The answer."""
    reasoning: str
    """The reasoning, without its marks. Empty: there is none."""
    unfinished: bool
    """Whether the text ends within the reasoning."""


def separate(text: str) -> Separated:
    """Separates the reasoning in ``text`` from the answer. A text without any is returned as it is."""
    if "<|channel|>" in text:
        return _channels(text)
    if text.startswith("analysis") and (found := _ASSISTANT_FINAL.match(text)) is not None:
        # The harmony format where a server dropped the special tokens.
        return _separated(text, [found.span("text")], [found["reasoning"]])
    if not any(word in text for word in _MARK_WORDS):
        return Separated(((0, len(text)),), text, "", False)
    return _tags(text)


_ANY_MARK = re.compile("|".join(re.escape(mark) for pair in _TAGS for mark in pair), re.IGNORECASE)
_PAIRED = {opening.casefold(): closing for opening, closing in _TAGS}


def blanked(text: str) -> str:
    """Returns a text with spaces in place of its reasoning, so that positions stay the same.

    A mark counts wherever it stands, unlike in ``separate``: reasoning within a line is not the answer.
    """
    spans = separate(text).spans
    if spans == ((0, len(text)),) and _ANY_MARK.search(text) is None:
        return text
    parts: list[str] = []
    position = 0
    for start, end in spans:
        parts += [" " * (start - position), text[start:end]]
        position = end
    rest = "".join([*parts, " " * (len(text) - position)])
    parts, position = [], 0
    begin = 0  # all before it is reasoning
    while mark := _ANY_MARK.search(rest, position):
        closing = _PAIRED.get(mark[0].casefold())
        if closing is None:
            parts, position = [], mark.end()
            begin = position
            continue
        found = re.compile(re.escape(closing), re.IGNORECASE).search(rest, mark.end())
        end = len(rest) if found is None else found.end()
        parts += [rest[position : mark.start()], " " * (end - mark.start())]
        position = end
    return "".join([" " * begin, *parts, rest[position:]])


def _tags(text: str) -> Separated:
    spans: list[tuple[int, int]] = []
    reasoning: list[str] = []
    position = _end_of_orphan(text, reasoning)
    unfinished = False
    while found := _NEXT_OPENING.match(text, position) or _OPENING.search(text, position):
        closing = _CLOSING[found[1]]
        end = text.find(closing, found.end())
        spans.append((position, found.start()))
        if end < 0:
            reasoning.append(text[found.end() :])
            position, unfinished = len(text), True
            break
        reasoning.append(text[found.end() : end])
        position = end + len(closing)
    spans.append((position, len(text)))
    if not reasoning:
        return Separated(((0, len(text)),), text, "", False)
    return _separated(text, spans, reasoning, unfinished=unfinished)


def _end_of_orphan(text: str, reasoning: list[str]) -> int:
    """Where reasoning ends that has no opening mark, because the chat template wrote it; 0: there is none."""
    orphan = _ORPHAN.search(text)
    if orphan is None or text.lstrip().startswith(_JSON_START):
        return 0
    opening = _OPENING.search(text)
    if opening is not None and opening.start() < orphan.start():
        return 0
    reasoning.append(text[: orphan.start()])
    return orphan.end()


def _channels(text: str) -> Separated:
    spans: list[tuple[int, int]] = []
    reasoning: list[str] = []
    first = text.find("<|channel|>")
    start = text.rfind("<|start|>", 0, first)
    before = (0, first if start < 0 else start)
    if text[before[0] : before[1]].strip():
        spans.append(before)
    unfinished = False
    for found in _CHANNEL.finditer(text):
        if found["name"] == _FINAL_CHANNEL:
            spans.append(found.span("text"))
            unfinished = False
        else:
            reasoning.append(found["text"])
            unfinished = not found["end"]
    return _separated(text, spans, reasoning, unfinished=unfinished)


def _separated(
    text: str, spans: Sequence[tuple[int, int]], reasoning: Sequence[str], *, unfinished: bool = False
) -> Separated:
    kept = tuple((start, end) for start, end in spans if end > start)
    answer = _WRAPPERS.sub("", "".join(text[start:end] for start, end in kept)).strip()
    thought = "\n\n".join(part.strip() for part in reasoning if part.strip())
    return Separated(kept, answer, thought, unfinished)
