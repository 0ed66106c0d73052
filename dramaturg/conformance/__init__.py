"""Checks a service of any language against its contract.

The checks call a running server over gRPC, as csi-sanity and the Connect conformance suite do. On the command
line: ``dramaturg judges check ROLE HOST:PORT``, or in place of the address the command that starts the
server; in a test suite, :func:`run` returns one :class:`Outcome` for each check.

The checks are about the form of answers. :func:`certify` tests which of a judge's properties hold within a
tolerance, for example how many planted faults it misses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.conformance.certificate import (
    MAY_REPLACE,
    NOT_APPLICABLE,
    SELF_PREFERENCE,
    TOLERANCES,
    Certificate,
    Property,
    certify,
    changes_since,
    self_preference,
)
from dramaturg.conformance.contracts import (
    CHALLENGE_JUDGES,
    EDGE_PREDICTORS,
    PAIR_JUDGES,
    RATING_JUDGES,
    SYNTHESIZERS,
)
from dramaturg.conformance.embedding import EMBEDDINGS
from dramaturg.conformance.generation import GENERATIONS
from dramaturg.conformance.judges import JUDGES
from dramaturg.conformance.kit import (
    BURST,
    Check,
    Outcome,
    StartError,
    Subject,
    Suite,
    junit_xml,
    reached,
    run_checks,
)
from dramaturg.conformance.text_scorers import TEXT_SCORERS
from dramaturg.judge.roles import (
    CHALLENGE_JUDGE,
    EDGES,
    EMBEDDING,
    PAIR_JUDGE,
    RATING_JUDGE,
    ROLES,
    SYNTHESIZE,
    TEXT_SCORER,
    JudgeRole,
    Role,
)
from dramaturg.results.equivalence import NOT_SHOWN, OUTSIDE, WITHIN

GENERATION = "generation"
"""The name under which a generation service is checked."""

_GENERATION = Role(
    GENERATION,
    generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name,
    ("generation",),
)
"""The service that talks to models. It has no role in an evaluation: judges call it."""

_SUITES: Mapping[str, Suite] = {
    SYNTHESIZE.contract: SYNTHESIZERS,
    PAIR_JUDGE.contract: PAIR_JUDGES,
    RATING_JUDGE.contract: RATING_JUDGES,
    CHALLENGE_JUDGE.contract: CHALLENGE_JUDGES,
    EDGES.contract: EDGE_PREDICTORS,
    TEXT_SCORER.contract: TEXT_SCORERS,
    EMBEDDING.contract: EMBEDDINGS,
    _GENERATION.contract: GENERATIONS,
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

CHECKED_ROLES: Sequence[str] = [
    JUDGE,
    *(name for name, role in ROLES.items() if checks_of(role)),
    GENERATION,
]
"""What can be checked: "judge", the built-in roles whose contracts have checks, and "generation"."""


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
    role = _GENERATION if name == GENERATION else ROLES[name]
    if isinstance(role, JudgeRole) and not role.criteria:
        return replace(role, criteria=tuple(criteria) or EXAMPLE_CRITERIA)
    if criteria:
        raise ValueError(f"the criteria of {name!r} are built in; name criteria with {JUDGE!r}")
    return role


async def run(
    role: Role,
    target: str = "",
    *,
    command: str | Sequence[str] = "",
    model: str = "",
    timeout: float = 60.0,
    burst: int = BURST,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Sequence[Outcome]:
    """Runs every check of a role's contract against a server.

    Args:
        role: The role whose contract the server should keep (see ``checked_role``).
        target: Where the server listens, such as ``localhost:50099``.
        command: The command that starts the server, in place of its address (see ``processes.started``). The
            drain is checked only of a server that is started so.
        model: The model that it is asked to use. Empty: its own default.
        timeout: The most seconds that one of its answers may take.
        burst: The calls at once of the check of overload.
        on_outcome: Called with each outcome as soon as it is known.

    Returns:
        One outcome for each check, in order.

    Raises:
        ValueError: The role has no checks, or not one of address and command is given.
        StartError: The command does not start a server.
    """
    checks = checks_of(role)
    if not checks:
        raise ValueError(f"{role.name!r} has no checks; there are those of {', '.join(CHECKED_ROLES)}")
    async with reached(target, command, role.contract, timeout=timeout) as (address, process):
        return await run_checks(
            checks,
            role,
            address,
            model=model,
            timeout=timeout,
            burst=burst,
            process=process,
            on_outcome=on_outcome,
        )


__all__ = [
    "BURST",
    "CHECKED_ROLES",
    "GENERATION",
    "JUDGE",
    "MAY_REPLACE",
    "NOT_APPLICABLE",
    "NOT_SHOWN",
    "OUTSIDE",
    "SELF_PREFERENCE",
    "TOLERANCES",
    "WITHIN",
    "Certificate",
    "Check",
    "Outcome",
    "Property",
    "StartError",
    "Subject",
    "certify",
    "changes_since",
    "checked_role",
    "checks_of",
    "junit_xml",
    "run",
    "self_preference",
]
