"""Every parser of what models and judges write, and what shows that one guessed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import permutations
from typing import Any

from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.judge.fence import fence, fence_items
from dramaturg.judge.steps import parse_candidate
from services.generation.answers.tolerant_json import read_tolerantly
from services.generation.authoring.decisions import PhraseForm, ProfileForm
from services.generation.authoring.dialogues import SimulationTaskForm, UserTurnForm
from services.generation.authoring.graphs import ScriptGraphForm
from services.generation.authoring.scripts import Action, ConstraintsForm, EditsForm
from services.generation.edges.prediction import EdgesForm
from tests.answers import parsers as answers
from tests.answers.test_properties import CLEAR, PIECES, READERS, STATED
from tests.hostile.values import TEXTS

Parser = Callable[[str], Any]

FORMS: Mapping[str, Any] = {
    "constraints": ConstraintsForm(2),
    "user turn": UserTurnForm(""),
    "edits": EditsForm(("Boil water.", "Pour it."), tuple(Action)),
    "written graph": ScriptGraphForm(),
    "scenario": PhraseForm(),
    "profile": ProfileForm(),
    "simulation task": SimulationTaskForm(),
    "edges": EdgesForm({1: "a", 2: "b"}),
}
"""The forms of answers of the services that write material."""


def _or_error(parse: Parser, text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


PARSERS: Mapping[str, Parser] = {
    **answers.PARSERS,
    **{name: partial(answers.read_form, form) for name, form in FORMS.items()},
    "candidate": lambda text: parse_candidate(Candidate(id="a", text=text)),
    "tolerant JSON": partial(_or_error, read_tolerantly),
    "fenced text": lambda text: fence("text", text, limit=200_000),
    "fenced items": lambda text: fence_items("steps", "step", text.split("\n"), limit=200_000),
}
"""The parsers by name. None of them raises."""

VALUES = tuple(STATED)
"""The kinds of answers whose value is a word or a number."""

PATTERNS: tuple[str, ...] = (
    *("{", "[", '{"a":', '{"a": "', "[[8]] ", '"rating": 7 ', '{"rating": 7}', "```json\n", "```", "<think>"),
    *(
        "</think>",
        "<|channel|>",
        "1. a\n",
        "1. ",
        "Step 1: ",
        "\u200b\n",
        "- \n",
        "\n",
        " ",
        "\t",
        "\\",
        '\\"',
    ),
    *(
        "\\u",
        "**",
        "* ",
        "#",
        "step0 -> step1;",
        "option 1 ",
        "either ",
        "Yes. No. ",
        "(((",
        "a, b, ",
        "1 2 3 ",
    ),
    *("9", "-1.5e", "\ufeff", "\u202e", "é\u0301", "好。", "="),
)
"""Texts that are repeated."""
BEGINNINGS = ("", "1. a\n2. ", '{"reason": "', "<think>", "```json\n{")

_WORDS = ("reason", "rating", "verdict", "pass", "fail", "7", "null", "true")
_BETWEEN = ("\n\n", "\n", " ", " or ", ". No, ", "\n\nCorrection:\n\n", ", ")


REPETITIONS = {
    f"{beginning}{pattern}": (beginning, pattern) for beginning in BEGINNINGS for pattern in PATTERNS
}
"""What texts repeat, by name."""


def repeated(name: str, length: int) -> str:
    """A text of a length that repeats a pattern."""
    beginning, pattern = REPETITIONS[name]
    return beginning + pattern * (max(0, length - len(beginning)) // len(pattern))


def random_text(source: random.Random) -> str:
    """A short text of patterns, words, parts of answers, hostile texts and any characters."""
    parts = []
    for _ in range(source.randint(1, 12)):
        kind = source.random()
        if kind < 0.4:
            parts.append(source.choice(PATTERNS) * source.randint(1, 3))
        elif kind < 0.7:
            parts.append(source.choice(PIECES))
        elif kind < 0.85:
            parts.append(source.choice(_WORDS))
        elif kind < 0.9:
            parts.append(source.choice(_SHORT_TEXTS))
        else:
            parts.append(chr(source.choice((source.randrange(1, 0x300), source.randrange(0xE000, 0x11000)))))
    return "".join(parts)


_SHORT_TEXTS = [text for text in TEXTS.values() if len(text) < 200]


def is_guess(kind: str, text: str) -> bool:
    """Whether a reader finds a value that the text does not state."""
    value = READERS[kind](text)
    return value is not None and not re.search(STATED[kind](value), text, re.IGNORECASE)


def takes_the_first(kind: str, source: random.Random) -> str:
    """Of two answers with different values, joined, the text if the reader takes the first; else empty."""
    first, second = source.sample(CLEAR[kind], 2)
    return _text_of_the_first(kind, first, second, source.choice(_BETWEEN))


def all_that_take_the_first(kind: str) -> list[str]:
    """The same of every two answers, joined in every way."""
    return [
        text
        for first, second in permutations(CLEAR[kind], 2)
        for between in _BETWEEN
        if (text := _text_of_the_first(kind, first, second, between))
    ]


def _text_of_the_first(kind: str, first: Any, second: Any, between: str) -> str:
    text = first["text"] + between + second["text"]
    return "" if READERS[kind](text) in (second["read"], None) else text
