"""Records the running calls to judges, for reports of waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType


class PendingCalls:
    """The calls that are made within ``noting``, tasks begun there included, and are not answered yet."""

    def __init__(self) -> None:
        self._begun: dict[str, dict[object, float]] = {}
        """By judge: when each call was begun, the first one first."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Takes note of the calls made within a ``with`` block."""
        token = _noting.set(self)
        try:
            yield
        finally:
            _noting.reset(token)

    def begin(self, judge: str, call: object) -> None:
        """Notes a call to a judge."""
        self._begun.setdefault(judge, {})[call] = time.monotonic()

    def end(self, judge: str, call: object) -> None:
        """Notes that it is over."""
        del self._begun[judge][call]
        if not self._begun[judge]:
            del self._begun[judge]

    def describe(self) -> str:
        """The judge with the longest running call, as text; empty without calls."""
        if not self._begun:
            return ""
        judge, calls = min(self._begun.items(), key=lambda entry: next(iter(entry[1].values())))
        return f"{judge} has not answered {len(calls)} call{'' if len(calls) == 1 else 's'}"


_noting: ContextVar[PendingCalls | None] = ContextVar("pending_calls", default=None)


def noted(
    turn: AbstractAsyncContextManager[None], role: str, judge: str
) -> AbstractAsyncContextManager[None]:
    """Wraps the turn of a call to a judge, which records the call while one is observed.

    Args:
        turn: Holds the turn within an ``async with`` block.
        role: The judge's role.
        judge: Its registered name.
    """
    pending = _noting.get()
    return turn if pending is None else _Noted(turn, pending, f"{role} {judge!r}")


class _Noted:
    __slots__ = ("_judge", "_pending", "_turn")

    def __init__(self, turn: AbstractAsyncContextManager[None], pending: PendingCalls, judge: str) -> None:
        self._turn = turn
        self._pending = pending
        self._judge = judge

    async def __aenter__(self) -> None:
        await self._turn.__aenter__()
        self._pending.begin(self._judge, self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pending.end(self._judge, self)
        await self._turn.__aexit__(kind, error, traceback)
