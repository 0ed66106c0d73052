"""Objective roles that come with the package: one file a kind of task (DRPE, section 3.1)."""

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
"""For what a simulator says next."""
OPEN_ANSWER = "open-answer"
"""For answers to open questions."""
FIXED_ROLES = "fixed-roles"
"""Six readers that stay the same for every text: the baseline ManualDRPE (DRPE, section 4.1)."""

NAMES = (SUMMARISATION, SCRIPT, DIALOGUE, OPEN_ANSWER, FIXED_ROLES)
"""Every set."""

_FOLDER = Path(__file__).parent


class UnknownRoleSetError(LookupError):
    """There is no such set; the message names those that there are."""


@cache
def role_set(name: str) -> tuple[Role, ...]:
    """The roles of a shipped set, in the order of its file. They are shared: copy before changing one.

    Raises:
        UnknownRoleSetError: There is no set of this name.
    """
    if name not in NAMES:
        raise UnknownRoleSetError(f"there is no role set {name!r}; there are {', '.join(NAMES)}")
    entries = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return tuple(Role(**entry, origin=ROLE_ORIGIN_OBJECTIVE) for entry in entries)
