"""Reads which of two options an answer chooses. Unclear answers have no choice."""

from __future__ import annotations

import re

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.judge.reasoning import blanked
from dramaturg.judge.short_answers import options_of

_SPELLINGS = {
    "1": decision_pb2.CHOICE_OPTION_1,
    "2": decision_pb2.CHOICE_OPTION_2,
    "3": decision_pb2.CHOICE_EITHER,
    "either": decision_pb2.CHOICE_EITHER,
    "both": decision_pb2.CHOICE_EITHER,
    "either one": decision_pb2.CHOICE_EITHER,
    "it makes little difference": decision_pb2.CHOICE_EITHER,
    "either: both serve the goal about equally well, it makes little difference": decision_pb2.CHOICE_EITHER,
    "either, as both come to about the same for the goal": decision_pb2.CHOICE_EITHER,
    "either one, since they have similar effect when it comes to the goal": decision_pb2.CHOICE_EITHER,
}
"""The answers that a prompt offers. The third one is in the words of our prompt, the example, the paper."""
_OPTION = r"\boption\s?(?P<{}>[12])\b(?:\s?\([^()\n]{{0,500}}\)|\s?[\"“][^\"“”\n]{{0,500}}[\"”])?"
_COMPARISON = re.compile(
    r"(?P<before>(?:given|since|because|as|considering|with|in|for|under|based on|due to)\b"
    r"[^?\n]{0,1000},\s(?:the\s)?)?"
    rf"{_OPTION.format('better')}\s(?:is|would be|seems|appears to be)\s(?:clearly\s)?(?:the\s|a\s)?"
    r"(?:better|preferable|more (?:reasonable|suitable|practical))(?:\s(?:choice|option|way))?"
    rf"\s(?:than|to)\s{_OPTION.format('worse')}(?P<rest>[^?]{{0,2000}})",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"\*\*|__|`")
_NAMES_OPTION = re.compile(r"\b(?:option|either|both|neither)\b", re.IGNORECASE)
_QUALIFIES = re.compile(rf"{_NAMES_OPTION.pattern}|\b(?:if|unless|only|when|but|however)\b", re.IGNORECASE)


def read_choice(text: str, option_1: str, option_2: str) -> Choice.ValueType | None:
    """Reads the choice of an answer: by number, as "Option 1", in the option's own words, or by a comparison.

    A comparison names both options in one sentence: "Given that the library is closed, Option 2 is better
    than Option 1." Nothing before or after it may name an option.

    Args:
        text: The text of the model.
        option_1: The option that was shown first.
        option_2: The option that was shown second.

    Returns:
        The choice, in the order shown, or None where it is unclear.
    """
    own = [option.casefold().strip(" .!;,") for option in (option_1, option_2)]
    words = {} if own[0] == own[1] else dict(zip(own, _SPELLINGS.values(), strict=False))
    choice = options_of({**words, **_SPELLINGS}).value_of(text)
    return choice if choice is not None else _compared(text)


def _compared(text: str) -> Choice.ValueType | None:
    """The better option of an answer that begins with a comparison. None: there is none, or it is unclear."""
    compared = _COMPARISON.fullmatch(_EMPHASIS.sub("", blanked(text)).strip())
    if compared is None or compared["better"] == compared["worse"]:
        return None
    is_unclear = _NAMES_OPTION.search(compared["before"] or "") or _QUALIFIES.search(compared["rest"])
    return None if is_unclear else _SPELLINGS[compared["better"]]
