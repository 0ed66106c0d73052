"""Reads which of two options an answer chooses, and never a choice from an unclear answer.

Accepted are the number alone ("1", "(2)", "3."), also announced ("The answer is 2"), the label ("Option 1",
"the second option", "option two"), "either", the option's own words, and sentences that choose one of them.
The third number stands for either, as in the paper's list of answers (Choice-75, appendix C). Answers that
name no choice or several are refused, and so are sentences that name one without clearly choosing it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice
from services.generation.authoring.claims import LEAD_IN, NAMED, chooses

MAX_LENGTH = 4000
"""The longest answer, in characters without its reasoning block, that can be clear. One line is asked for."""

_CHOICES = (decision_pb2.CHOICE_OPTION_1, decision_pb2.CHOICE_OPTION_2, decision_pb2.CHOICE_EITHER)
_EITHER = len(_CHOICES) - 1

_WORDS = {"1": 0, "one": 0, "first": 0, "1st": 0, "2": 1, "two": 1, "second": 1, "2nd": 1, "3": 2, "three": 2}
_NUMBER = r"\s*(?:number\s*)?(1|2|3|one|two|three)\b"
_LABEL = re.compile(
    rf"\boption{_NUMBER}"
    r"|\b(first|second|1st|2nd)\s+(?:option|one|choice|way|alternative)\b"
    # "Either option two" names two choices.
    rf"|\beither\b(?!\s+way)(?:\s+(?:option(?!{_NUMBER})|one|choice|of\s+them)\b)?"
)
_BARE = re.compile(rf"(?:{LEAD_IN})?\(?\s*([123])\s*[).:]*")
_NUMBERED = re.compile(rf"(?:{LEAD_IN})?\(?\s*([123])\b\W*(?=\w|{NAMED})")
_LONE_NUMBER = re.compile(r"(?<![\w.])([123])\s*\)?\s*(?=$|[\n;:,/!?]|\.(?!\d))")
_THINKING = re.compile(r"\A\s*<(think(?:ing)?)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_EMPHASIS = re.compile(rf"[*_`\"“”„«»#\[\]{NAMED}]")


def read_choice(text: str, option_1: str, option_2: str) -> Choice.ValueType | None:
    """Reads an answer.

    Args:
        text: What the model wrote.
        option_1: The option that was shown first.
        option_2: The option that was shown second.

    Returns:
        The choice, in the order shown, or None where there is no clear one.
    """
    answer = _clean(_THINKING.sub("", text))
    if len(answer) > MAX_LENGTH:
        return None
    bare = _BARE.fullmatch(answer)
    if bare:
        return _CHOICES[int(bare[1]) - 1]
    named: set[int] = set()
    answer = _mark_own_words(answer, (_clean(option_1), _clean(option_2)), named)
    numbered = _NUMBERED.match(answer)
    if numbered:
        answer = answer[numbered.end() :]
    answer = _LABEL.sub(_marker(named), answer)
    named.update(int(number) - 1 for number in _LONE_NUMBER.findall(answer))
    # Whoever says "either" speaks of the choice; whoever names an option may only be speaking of the option.
    if len(named) != 1 or not chooses(answer, in_any_form=named == {_EITHER}):
        return None
    choice = named.pop()
    return _CHOICES[choice] if numbered is None or int(numbered[1]) - 1 == choice else None


def _clean(text: str) -> str:
    """Lower case, plain apostrophes, no emphasis, single spaces; lines stay apart."""
    text = _EMPHASIS.sub("", text.replace("\u2019", "'").casefold())
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _mark_own_words(answer: str, options: tuple[str, str], named: set[int]) -> str:
    """Marks where an option is named by its own words, the longer one's first: it may hold the shorter."""
    texts = [option.rstrip(".!;, ") for option in options]
    if texts[0] == texts[1]:
        return answer
    for index, own in sorted(enumerate(texts), key=lambda entry: -len(entry[1])):
        if own:
            answer, found = re.subn(rf"(?<!\w){re.escape(own)}(?!\w)", NAMED, answer)
            named |= {index} if found else set()
    return answer


def _marker(named: set[int]) -> Callable[[re.Match[str]], str]:
    def mark(found: re.Match[str]) -> str:
        word = found[1] or found[2]
        named.add(_WORDS[word] if word else _EITHER)
        return NAMED

    return mark
