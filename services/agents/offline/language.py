"""Whether a text is in a script that the sentence encoder was trained on."""

from __future__ import annotations

import re
from collections.abc import Iterable

UNSUPPORTED = (
    "The text is mostly not in Latin script, and the sentence encoder was trained on English: "
    "its similarities mean nothing here."
)

_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")


def is_latin(texts: Iterable[str]) -> bool:
    """Whether at least half of the letters are Latin; true where there are no letters.

    Letters do not distinguish English from other languages in Latin script, so this condition is necessary
    but not sufficient: the encoder is weaker on French than on English.
    """
    latin = letters = 0
    for text in texts:
        letters += sum(character.isalpha() for character in text)
        latin += len(_LATIN.findall(text))
    return 2 * latin >= letters
