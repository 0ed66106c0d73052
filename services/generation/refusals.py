"""Which refusals tell of a limit, and which come at random.

At a limit, calls are refused one after another until it admits calls again. An overloaded provider refuses
calls in between others that it takes. So what counts is how many calls, next to each other in the order of
sending, were refused: more than the share of refusals at random lets expect.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from enum import Enum, auto

_KEPT = 1000
"""Calls whose outcome is kept."""
_MEMORY = 400
"""The share of refusals at random is one of about this many calls."""
_CHANCE = 1e-4
"""How likely, at most, refusals at random are taken for those of a limit."""
_SHORTEST, _LONGEST = 3, 14


class _State(Enum):
    TAKEN = auto()
    """Or not answered yet."""
    REFUSED = auto()
    CONFIRMED = auto()
    """Refused, because of a limit."""


class RefusalRuns:
    """The outcome of the latest calls of a model, in the order of sending."""

    def __init__(self) -> None:
        self._states: OrderedDict[int, _State] = OrderedDict()
        """By the number of the call, in the order of sending."""
        self._calls, self._random = 10.0, 0.4

    def sent(self, number: int) -> None:
        """Counts a call that is sent; numbers rise."""
        self._states[number] = _State.TAKEN
        if len(self._states) > _KEPT:
            self._states.popitem(last=False)
        self._calls += 1
        if self._calls > _MEMORY:
            self._calls, self._random = self._calls / 2, self._random / 2

    def refused(self, number: int) -> list[int]:
        """Takes that a call was refused. Returns those that were, one after another, around it, and it."""
        if number not in self._states:
            return [number]
        self._states[number] = _State.REFUSED
        self._random += 1
        run = [number]
        for step in (-1, 1):
            other = number + step
            while self._states.get(other, _State.TAKEN) is not _State.TAKEN:
                run.append(other)
                other += step
        return run

    def confirm(self, run: list[int]) -> bool:
        """Whether refusals one after another tell of a limit. If so they no longer count as random."""
        random = [number for number in run if self._states.get(number) is _State.REFUSED]
        share = max(0.4, self._random - len(random)) / max(10.0, self._calls - len(run))
        least = math.ceil(math.log(_CHANCE) / math.log(min(0.6, max(0.01, share))))
        least = min(_LONGEST, max(_SHORTEST, least))
        if len(run) < least:
            return False
        self._random = max(0.4, self._random - len(random))
        self._states.update(dict.fromkeys(random, _State.CONFIRMED))
        return True
