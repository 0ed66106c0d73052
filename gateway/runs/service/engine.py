"""What RunService needs of the engine."""

from __future__ import annotations

from typing import Protocol


class Engine(Protocol):
    """Works on runs. What is to be done stands in the store; the engine is told that it changed."""

    async def submit(self, run_id: str) -> None:
        """A run was created or begun anew: has somebody work on its present attempt. Idempotent."""

    async def wake(self, run_id: str) -> None:
        """The state, the limits or the budget of a run changed: sees to it that they are looked at soon."""
