"""The calls of this process that are under way, and what a shared store must still be told of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from services.generation.ledger.spool import Sent


@dataclass(slots=True)
class Notes:
    """Notes by number (see ``Ledger.intend``). Most are settled before the store hears of them."""

    _fresh: dict[int, Sent] = field(default_factory=dict)
    """Under way, and unknown to the store; the oldest first."""
    _posted: dict[int, Sent] = field(default_factory=dict)
    """Under way, and known to it."""
    settled: list[int] = field(default_factory=list)
    """Known to it, and to be forgotten."""
    abandoned: dict[int, Sent] = field(default_factory=dict)
    """To be told: nobody waits for them any more."""

    def add(self, number: int, sent: Sent) -> None:
        """Notes a call that is about to be sent."""
        self._fresh[number] = sent

    def settle(self, numbers: Collection[int]) -> None:
        """Takes notes back."""
        for number in numbers:
            if self._fresh.pop(number, None) is None and self._posted.pop(number, None) is not None:
                self.settled.append(number)

    def abandon(self, numbers: Collection[int]) -> None:
        """Notes that nobody waits for these calls any more."""
        for number in numbers:
            sent = self._fresh.pop(number, None) or self._posted.pop(number, None)
            if sent is not None:
                self.abandoned[number] = sent

    @property
    def under_way(self) -> Mapping[int, Sent]:
        """All calls under way."""
        return self._fresh | self._posted

    def post(self, latest: float) -> dict[int, Sent]:
        """The calls unknown to the store that were sent no later than that, in seconds since 1970."""
        old = list(takewhile(lambda number: self._fresh[number].sent_at <= latest, self._fresh))
        sent = {number: self._fresh.pop(number) for number in old}
        self._posted |= sent
        return sent
