"""Finds requests of the user agent that do not continue a dialogue: repetitions and farewells."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import Utterance

REPEATED = "it repeats its previous request"
FAREWELL = "it says goodbye"

_FAREWELL_WORDS = 12
"""A longer request that has a farewell also has a subject."""
_FAREWELL = re.compile(
    r"\b(?:good ?bye|bye(?:[ -]bye)?|farewell|see you(?: (?:later|soon|next time))?|good night|take care)\b"
)
_WORD = re.compile(r"\w+")


def stall(text: str, utterances: Sequence[Utterance]) -> str:
    """Why a request does not continue a dialogue. Empty: it does.

    Requests are compared after NFKC normalization and case folding, with white space collapsed. A farewell is
    found in English, in requests of at most 12 words that ask no question.

    Args:
        text: The request.
        utterances: The dialogue so far.
    """
    said = _normalized(text)
    user = dialogue_pb2.SPEAKER_USER
    previous = next((one.text for one in reversed(utterances) if one.speaker == user), None)
    if previous is not None and said == _normalized(previous):
        return REPEATED
    short = "?" not in said and len(_WORD.findall(said)) <= _FAREWELL_WORDS
    return FAREWELL if short and _FAREWELL.search(said) else ""


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
