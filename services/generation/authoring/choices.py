"""Reads which of two options an answer chooses. Unclear answers have no choice."""

from __future__ import annotations

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice
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


def read_choice(text: str, option_1: str, option_2: str) -> Choice.ValueType | None:
    """Reads the choice of an answer: by number, as "Option 1", or in the option's own words.

    Args:
        text: The text of the model.
        option_1: The option that was shown first.
        option_2: The option that was shown second.

    Returns:
        The choice, in the order shown, or None where it is unclear.
    """
    own = [option.casefold().strip(" .!;,") for option in (option_1, option_2)]
    words = {} if own[0] == own[1] else dict(zip(own, _SPELLINGS.values(), strict=False))
    return options_of({**words, **_SPELLINGS}).value_of(text)
