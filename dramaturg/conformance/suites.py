"""The checks of each contract, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dramaturg.conformance.contracts import (
    CHALLENGE_JUDGES,
    EDGE_PREDICTORS,
    PAIR_JUDGES,
    RATING_JUDGES,
    SYNTHESIZERS,
)
from dramaturg.conformance.judges import JUDGES
from dramaturg.conformance.kit import Check, Outcome, Suite, run_checks
from dramaturg.conformance.text_scorers import TEXT_SCORERS
from dramaturg.judge.roles import (
    CHALLENGE_JUDGE,
    EDGES,
    PAIR_JUDGE,
    RATING_JUDGE,
    ROLES,
    SYNTHESIZE,
    TEXT_SCORER,
    JudgeRole,
    Role,
)

_SUITES: Mapping[str, Suite] = {
    SYNTHESIZE.contract: SYNTHESIZERS,
    PAIR_JUDGE.contract: PAIR_JUDGES,
    RATING_JUDGE.contract: RATING_JUDGES,
    CHALLENGE_JUDGE.contract: CHALLENGE_JUDGES,
    EDGES.contract: EDGE_PREDICTORS,
    TEXT_SCORER.contract: TEXT_SCORERS,
}


def checks_of(role: Role) -> Sequence[Check]:
    """The checks of a role's contract, in the order in which they are run; none where there are none yet."""
    if isinstance(role, JudgeRole):
        return JUDGES.checks
    suite = _SUITES.get(role.contract)
    return suite.checks if suite else ()


JUDGE = "judge"
"""The name under which a judge of texts is checked for no role in particular."""

EXAMPLE_CRITERIA = ("answers_the_task", "easy_to_follow")
"""The criteria that judges of any criterion are checked with, where none are named."""

CHECKED_ROLES: Sequence[str] = [JUDGE, *(name for name, role in ROLES.items() if checks_of(role))]
"""What can be checked: "judge", and the built-in roles whose contracts have checks."""


def checked_role(name: str, criteria: Sequence[str] = ()) -> Role:
    """The role that a server is checked for.

    Args:
        name: One of ``CHECKED_ROLES``.
        criteria: The criteria of a role that has none built in: "judge" and "rubric-judge".

    Raises:
        ValueError: There is no such role to check, or its criteria are built in.
    """
    if name not in CHECKED_ROLES:
        raise ValueError(f"{name!r} has no checks; there are those of {', '.join(CHECKED_ROLES)}")
    if name == JUDGE:
        return JudgeRole(name=JUDGE, criteria=tuple(criteria))
    role = ROLES[name]
    if isinstance(role, JudgeRole) and not role.criteria:
        return replace(role, criteria=tuple(criteria) or EXAMPLE_CRITERIA)
    if criteria:
        raise ValueError(f"the criteria of {name!r} are built in; name criteria with {JUDGE!r}")
    return role


async def run(
    role: Role,
    target: str,
    *,
    model: str = "",
    timeout: float = 60.0,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Sequence[Outcome]:
    """Runs every check of a role's contract against a server.

    Args:
        role: The role whose contract the server should keep (see ``checked_role``).
        target: Where the server listens, such as ``localhost:50099``.
        model: The model that it is asked to use. Empty: its own default.
        timeout: The most seconds that one of its answers may take.
        on_outcome: Called with each outcome as soon as it is known.

    Returns:
        One outcome for each check, in order.

    Raises:
        ValueError: The role has no checks.
    """
    checks = checks_of(role)
    if not checks:
        raise ValueError(f"{role.name!r} has no checks; there are those of {', '.join(CHECKED_ROLES)}")
    return await run_checks(checks, role, target, model=model, timeout=timeout, on_outcome=on_outcome)
