"""Notices judges of an unexpected version, and judges whose identity changes during a run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from dramaturg.api.evaluation.v1 import run_pb2
from gateway.evaluations.calls import SeenIdentity
from gateway.runs.engine.conclusion import Conclusion
from gateway.runs.records import SeenJudge

logger = logging.getLogger(__name__)

Note = Callable[[SeenJudge], Awaitable[Sequence[SeenJudge]]]
"""Records an identity in the run; returns the judge's other identities in the run, if this one is new."""


class _Change(NamedTuple):
    seen: SeenIdentity
    reason: str


class JudgeWatch:
    """Compares the identities of the judges of a run with the expected and the earlier ones.

    A version that is not the expected one is reported for each sample. A change of the identity is reported
    once, when the store records the new one, so that a resumed run goes on with the judge as it is. A change
    within an expected range is logged alone: the range states which versions are interchangeable.

    Args:
        run_id: The run.
        note: Records an identity.
    """

    def __init__(self, run_id: str, note: Note) -> None:
        self._run_id = run_id
        self._note = note
        self._known: set[SeenIdentity] = set()

    async def record(self, identities: Iterable[SeenIdentity]) -> Conclusion | None:
        """Records the identities of the judges of a sample; returns the reaction of the run, or None."""
        changes = [change for seen in sorted(identities) if (change := await self._compare(seen))]
        for policy, state in _STATES:
            for change in changes:
                if change.seen.reaction == policy:
                    return Conclusion(state, run_pb2.RUN_OUTCOME_JUDGE_CHANGED, change.reason)
        return None

    async def _compare(self, seen: SeenIdentity) -> _Change | None:
        judge = f"the judge {seen.judge!r} of {seen.role}"
        change = _Change(seen, f"{judge} {seen.deviation}") if seen.deviation else None
        if seen in self._known:
            return change
        others = await self._note(SeenJudge(seen.role, seen.judge, seen.name, seen.version))
        self._known.add(seen)
        if not others:
            return change
        before = others[-1]
        reason = (
            f"{judge} changed during the run: it was {before.name} {before.version} and is "
            f"{seen.name} {seen.version}"
        )
        logger.warning("%s", reason, extra={"fields": {"run": self._run_id, "policy": seen.reaction}})
        if change is None and seen.expected and before.name == seen.name:
            return None
        return change or _Change(seen, reason)


_STATES = (("fail", run_pb2.RUN_STATE_FAILED), ("pause", run_pb2.RUN_STATE_PAUSED))
