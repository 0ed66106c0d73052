"""Differences in wording that reverse the meaning of a step, by English word lists, and quotes of steps."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import chain


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPPOSITES = frozenset(
    frozenset(pair.split("/"))
    for pair in _words("""
    on/off in/out into/out to/from inside/outside indoors/outdoors open/close open/shut up/down wet/dry
    upper/lower left/right top/bottom front/back hot/cold warm/cool warm/cold heat/cool before/after
    start/stop start/end begin/end add/remove attach/detach insert/remove push/pull increase/decrease
    raise/lower high/low lock/unlock fill/empty more/less over/under above/below large/small big/small
    long/short thick/thin tighten/loosen fasten/unfasten connect/disconnect enable/disable install/uninstall
    plug/unplug wrap/unwrap fold/unfold zip/unzip tie/untie enter/exit enter/leave buy/sell send/receive
    light/dark black/white hard/soft clean/dirty with/without same/different many/few inner/outer
    clockwise/counterclockwise forward/backward forwards/backwards
    """)
)
"""Pairs of opposites. Embeddings of steps that differ by such a pair are similar."""

NEGATIONS = _words("not no never without don't dont doesn't won't can't cannot avoid stop nor none")
"""Words that negate a step."""

NUMBER_WORDS = _words("""
    zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred half
    twice thrice once first second third fourth fifth sixth last next final other another
""")
"""Words that distinguish similar steps: a second coat of paint does not duplicate the first."""

ABSENCE_OR_QUANTITY = _words("""
    not no non never without don't dont doesn't can't cannot avoid avoiding avoided free low less least
    minimal minimum maximum few fewer only except excluding instead rather under over below above within more
    most
    limited limit lack lacking skip skipping nothing none half double twice single one two three four five six
    seven eight nine ten several many much enough cheap cheaply budget quick quickly fast slow slowly easy
    easily small large big little short long
""")
"""Words of constraints of absence or quantity."""

FUNCTION_WORDS = _words("""
    a an and as at be by do for from get go have how if in into is it its make of on or out so some that the
    their them then there this to up use used using want with you your when while where which who will can
""")
"""Words that carry little of a step's or a constraint's content."""


_WORD = re.compile(r"\d+(?:[.,/]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)?")

_MOST_WORDS = 4
"""The maximum number of words of a difference, on each side."""


def normalise(step: str) -> str:
    """Normalises the width, case, spaces and final stop of a step."""
    text = unicodedata.normalize("NFKC", step).casefold()
    return " ".join(text.split()).rstrip(" .;,!。；！")


def words(text: str) -> list[str]:
    """Returns the words and numbers of a text, in lower case, in order."""
    return [word.replace("’", "'") for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold())]


def contrast(first: str, second: str) -> str | None:
    """Returns the difference that keeps two steps from being duplicates, regardless of their similarity.

    Returns:
        The difference in words, for example "on/off" or "2 against 3", or None.
    """
    left, right = Counter(words(first)), Counter(words(second))
    only_left, only_right = left - right, right - left
    counts = [
        _some(word for word in side if word[0].isdigit() or word in NUMBER_WORDS)
        for side in (only_left, only_right)
    ]
    if any(counts):
        return f"{counts[0] or 'no number'} against {counts[1] or 'no number'}"
    for one in only_left:
        for other in only_right:
            if frozenset((_stem(one), _stem(other))) in _STEMMED or frozenset((one, other)) in OPPOSITES:
                return f"{one}/{other}"
    for word in sorted(chain(only_left, only_right)):
        if word in NEGATIONS:
            return f"{word!r} in one alone"
    sides = [
        _some(word for word in side if word not in FUNCTION_WORDS)
        for side in _without_shared_stems(only_left, only_right)
    ]
    if any(sides):
        # "Draw the head" and "draw the body" are as similar as paraphrases.
        return f"{sides[0] or 'nothing'} against {sides[1] or 'nothing'}"
    return None


def _some(chosen: Iterable[str]) -> str:
    ordered = sorted(chosen)
    return " ".join(ordered[:_MOST_WORDS]) + (" …" if len(ordered) > _MOST_WORDS else "")


def _without_shared_stems(left: Counter[str], right: Counter[str]) -> tuple[list[str], list[str]]:
    shared = set(map(_stem, left)) & set(map(_stem, right))
    return (
        [word for word in left if _stem(word) not in shared],
        [word for word in right if _stem(word) not in shared],
    )


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "d", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


_STEMMED = frozenset(frozenset(map(_stem, pair)) for pair in OPPOSITES)


_LONGEST_QUOTE = 160
_MOST_QUOTES = 5


def quote(text: str) -> str:
    """Quotes a text on one line. The middle of long texts is omitted."""
    line = " ".join(text.split())
    if len(line) > _LONGEST_QUOTE:
        half = _LONGEST_QUOTE // 2
        line = f"{line[:half]} … {line[-half:]}"
    return f'"{line}"'


def quote_all(texts: Iterable[str]) -> str:
    """Quotes several texts. Of many, it quotes the first few and states the number of the others."""
    quoted = [quote(text) for text in texts]
    shown, rest = quoted[:_MOST_QUOTES], len(quoted) - _MOST_QUOTES
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
