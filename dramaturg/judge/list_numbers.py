"""Recognises the numbers of list items in a text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

from dramaturg.judge.markers import Marker

_MIN_WITHIN_LINE = 3
# The maximum number of tried starts of a list within a line, which keeps the time linear.
_MAX_BEGINNINGS = 20
_PUNCTUATION = re.compile(r"[.;:,!?…。；：，！？、)\]）】*]\s*\Z")


def ascending(text: str, markers: Sequence[Marker]) -> Sequence[Marker]:
    """Returns the markers of a list: one family with ascending numbers. Empty: there is no list.

    The family that begins first wins, so that "1." within "Step 1:" is a part of the step.
    """
    families: dict[str, list[Marker]] = {}
    for marker in markers:
        families.setdefault(marker.family, []).append(marker)
    chains = [chain for family in families.values() if (chain := _chain(text, family))]
    long = [chain for chain in chains if len(chain) > 1]
    if long:
        return min(long, key=lambda chain: chain[0].start)
    # A single number marks a step only where no text precedes it.
    return next((chain for chain in chains if not text[: chain[0].start].strip()), ())


def _chain(text: str, family: Sequence[Marker]) -> list[Marker]:
    at_line_start = [marker for marker in family if not marker.within_line]
    chain = _along_lines(at_line_start)
    if len(chain) > 1:
        return _with_gaps_filled(chain, family)
    return _within_lines(text, family) or chain


def _along_lines(markers: Sequence[Marker]) -> list[Marker]:
    """Returns the numbers at line starts of the outermost level, otherwise of any indentation."""
    start = _first(markers)
    if start is None:
        return []
    following = markers[markers.index(start) :]
    outer = [marker for marker in following if marker.indent <= start.indent + 1]
    chain = list(_rising(outer))
    return chain if len(chain) > 1 else list(_rising(following))


def _first(markers: Sequence[Marker]) -> Marker | None:
    """Returns the start of a list: 0 or 1, else the first number whose successor follows."""
    start = next((marker for marker in markers if marker.number <= 1), None)
    if start is not None:
        return start
    return next((one for one, other in pairwise(markers) if other.number == one.number + 1), None)


def _rising(markers: Sequence[Marker]) -> Iterator[Marker]:
    """Drops numbers that do not continue the list. One number may be missing, and a list may restart at 1."""
    last = None
    for marker in markers:
        begins_again = marker.number == 1 and not marker.within_line
        if last is None or begins_again or last < marker.number <= last + 2:
            yield marker
            last = marker.number


def _with_gaps_filled(chain: list[Marker], family: Sequence[Marker]) -> list[Marker]:
    """Adds numbers within lines that fit between two at line starts: "1. a 2. b", "3. c 4. d"."""
    positions = [marker.start for marker in family]
    places = [bisect_left(positions, marker.start) for marker in chain]
    filled: list[Marker] = []
    any_filled = False
    for place, following in zip(places, [*places[1:], None], strict=True):
        filled.append(family[place])
        between = _consecutive(family[place], family[place + 1 : following])
        if following is None:
            filled += between if any_filled else ()
        elif between and len(between) >= (wanted := family[following].number - family[place].number - 1) > 0:
            filled += between[:wanted]
            any_filled = True
    return filled


def _consecutive(marker: Marker, following: Iterable[Marker]) -> list[Marker]:
    found: list[Marker] = []
    for other in following:
        if other.within_line and other.number == marker.number + len(found) + 1:
            found.append(other)
    return found


def _within_lines(text: str, family: Sequence[Marker]) -> list[Marker]:
    """Returns the list of a single line. A list of two items needs punctuation before the second number."""
    places = (place for place, marker in enumerate(family) if marker.number == 1)
    for place in islice(places, _MAX_BEGINNINGS):
        start = family[place]
        opens = not start.within_line or _begins_clause(text, start)
        chain = [start, *_consecutive(start, family[place + 1 :])] if opens else []
        if len(chain) >= _MIN_WITHIN_LINE or (len(chain) > 1 and _begins_clause(text, chain[1])):
            return chain
    return []


def _begins_clause(text: str, marker: Marker) -> bool:
    before = text[max(0, marker.start - 8) : marker.start]
    return not before.strip() or _PUNCTUATION.search(before) is not None
