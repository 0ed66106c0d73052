"""Objective roles of the package: one file per kind of task (DRPE, section 3.1)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_OBJECTIVE, Role

SUMMARISATION = "summarisation"
"""For summaries of a source text."""
SCRIPT = "script"
"""For step-by-step instructions."""
DIALOGUE = "dialogue"
"""For responses of a simulator."""
OPEN_ANSWER = "open-answer"
"""For answers to open questions."""
FIXED_ROLES = "fixed-roles"
"""Six fixed readers for all texts: the baseline ManualDRPE (DRPE, section 4.1)."""

NAMES = (SUMMARISATION, SCRIPT, DIALOGUE, OPEN_ANSWER, FIXED_ROLES)
"""Every set."""

_FOLDER = Path(__file__).parent


class UnknownRoleSetError(LookupError):
    """The set does not exist; the message lists the existing ones."""


@cache
def role_set(name: str) -> tuple[Role, ...]:
    """Returns the roles of a set, in the order of its file. They are shared: copy a role before changing it.

    Raises:
        UnknownRoleSetError: The set does not exist.
    """
    if name not in NAMES:
        raise UnknownRoleSetError(f"there is no role set {name!r}; there are {', '.join(NAMES)}")
    entries = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return tuple(Role(**entry, origin=ROLE_ORIGIN_OBJECTIVE) for entry in entries)
