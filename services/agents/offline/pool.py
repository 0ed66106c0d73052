"""The usable other candidates of a task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from dramaturg.judge.steps import ParsedCandidate, is_blank
from services.agents.offline.language import is_latin

MAX_STEPS = 4000
"""The maximum number of steps of a consensus: 200 scripts of 20 steps. Similarities of all pairs are
computed, so time and memory grow with the square."""


@dataclass(frozen=True)
class PooledScript:
    """A candidate with steps."""

    id: str
    steps: tuple[str, ...]
    """The steps: at least one, none blank."""


@dataclass(frozen=True)
class Pool:
    """The usable candidates, in an order independent of the request."""

    scripts: tuple[PooledScript, ...]
    left_out: int
    """The number of unusable candidates: empty, without steps, not in Latin script, or over the limit."""

    @property
    def size(self) -> int:
        """The number of usable candidates."""
        return len(self.scripts)

    @property
    def steps(self) -> list[str]:
        """All steps of all scripts, one script after the other."""
        return [step for script in self.scripts for step in script.steps]


def read_pool(candidates: Iterable[ParsedCandidate]) -> Pool:
    """Reads a pool.

    Over the limit, whole scripts are omitted, selected by the hash of their content.

    Args:
        candidates: The pool.
    """
    scripts = []
    total = 0
    for candidate in candidates:
        total += 1
        steps = tuple(step for step in candidate.steps if not is_blank(step))
        if steps and is_latin(steps):
            scripts.append(PooledScript(candidate.id, steps))
    kept = []
    room = MAX_STEPS
    for script in sorted(scripts, key=_by_content):
        if len(script.steps) <= room:
            kept.append(script)
            room -= len(script.steps)
    return Pool(tuple(kept), total - len(kept))


def _by_content(script: PooledScript) -> tuple[bytes, str]:
    content = "\n".join(script.steps).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).digest(), script.id
