"""Records the running calls to judges, for reports of waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType


class PendingCalls:
    """The unanswered calls made within ``noting`` and in the tasks started there."""

    def __init__(self) -> None:
        self._begun: dict[str, dict[object, float]] = {}
        """The start of each call by judge, earliest first."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Records the calls made within a ``with`` block."""
        token = _noting.set(self)
        try:
            yield
        finally:
            _noting.reset(token)

    def begin(self, judge: str, call: object) -> None:
        """Records the start of a call to a judge."""
        self._begun.setdefault(judge, {})[call] = time.monotonic()

    def end(self, judge: str, call: object) -> None:
        """Records the end of a call."""
        del self._begun[judge][call]
        if not self._begun[judge]:
            del self._begun[judge]

    def describe(self) -> str:
        """The judge with the longest running call, as text; empty without calls."""
        if not self._begun:
            return ""
        judge, calls = min(self._begun.items(), key=lambda entry: next(iter(entry[1].values())))
        return f"{judge} has not answered {len(calls)} call{'' if len(calls) == 1 else 's'}"


@contextmanager
def unnoted() -> Iterator[None]:
    """Does not record the calls made within a ``with`` block, or in the tasks started there."""
    token = _noting.set(None)
    try:
        yield
    finally:
        _noting.reset(token)


_noting: ContextVar[PendingCalls | None] = ContextVar("pending_calls", default=None)


def noted(
    turn: AbstractAsyncContextManager[None], role: str, judge: str
) -> AbstractAsyncContextManager[None]:
    """Wraps the slot of a call, to record the call within ``PendingCalls.noting``.

    Args:
        turn: Holds the slot within an ``async with`` block.
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
