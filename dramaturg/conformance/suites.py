"""Which checks there are for which contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dramaturg.conformance.judges import JUDGES
from dramaturg.conformance.kit import Check, Outcome, run_checks
from dramaturg.conformance.text_scorers import TEXT_SCORERS
from dramaturg.judge.roles import ROLES, TEXT_SCORER, JudgeRole, Role


def checks_of(role: Role) -> Sequence[Check]:
    """The checks of a role's contract, in the order in which they are run; none where there are none yet."""
    if isinstance(role, JudgeRole):
        return JUDGES.checks
    return TEXT_SCORERS.checks if role == TEXT_SCORER else ()


CHECKED_ROLES: Sequence[str] = [name for name, role in ROLES.items() if checks_of(role)]
"""The roles whose contracts can be checked."""


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
        role: The role whose contract the server should keep; one of ``CHECKED_ROLES``.
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
        raise ValueError(f"{role.name!r} has no checks; there are {', '.join(CHECKED_ROLES)}")
    return await run_checks(checks, role, target, model=model, timeout=timeout, on_outcome=on_outcome)
