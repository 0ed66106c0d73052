"""The frame of the conformance kit: what a check is, and how all of them are run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import grpc

from dramaturg.judge.roles import Role
from dramaturg.service.channel import open_channel


class RequirementError(Exception):
    """A requirement does not hold; the message says how, with what was seen."""


@dataclass(frozen=True)
class Subject:
    """The server under test."""

    role: Role
    """The role whose contract it should keep."""
    channel: grpc.aio.Channel
    """An open channel to it."""
    model: str
    """The model that it is asked to use. Empty: its own default."""
    timeout: float
    """The most seconds that one of its answers may take."""


@dataclass(frozen=True)
class Check:
    """One requirement and how it is tried."""

    name: str
    """Its name, in kebab case."""
    requirement: str
    """What must hold, in a sentence."""
    mend: str
    """How a server that breaks it is mended, in a sentence."""
    attempt: Callable[[Subject], Awaitable[None]]
    """Tries it. Raises :class:`RequirementError` where it does not hold."""


@dataclass(frozen=True)
class Outcome:
    """What became of one check."""

    check: Check
    """The check."""
    failure: str
    """How the requirement does not hold. Empty: it does."""
    seconds: float
    """How long the check took."""

    @property
    def passed(self) -> bool:
        """Whether the requirement holds."""
        return not self.failure


Attempt = Callable[[Subject], Awaitable[None]]


def require(condition: bool, message: str) -> None:
    """Raises RequirementError unless the condition holds."""
    if not condition:
        raise RequirementError(message)


class Suite:
    """The checks of one kind of contract."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        """In the order in which they are run."""

    def check(self, requirement: str, *, mend: str) -> Callable[[Attempt], Attempt]:
        """Registers the decorated coroutine function as the check of a requirement, and how to mend it."""

        def register(attempt: Attempt) -> Attempt:
            name = getattr(attempt, "__name__", "").replace("_", "-")
            self.checks.append(Check(name=name, requirement=requirement, mend=mend, attempt=attempt))
            return attempt

        return register


async def run_checks(
    checks: Sequence[Check],
    role: Role,
    target: str,
    *,
    model: str = "",
    timeout: float = 60.0,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Sequence[Outcome]:
    """Runs checks against a server.

    Args:
        checks: The checks.
        role: The role whose contract the server should keep.
        target: Where the server listens, such as ``localhost:50099``.
        model: The model that it is asked to use. Empty: its own default.
        timeout: The most seconds that one of its answers may take.
        on_outcome: Called with each outcome as soon as it is known.

    Returns:
        One outcome for each check, in order.
    """
    outcomes = []
    async with open_channel(target) as channel:
        subject = Subject(role=role, channel=channel, model=model, timeout=timeout)
        for one in checks:
            outcomes.append(await _attempt(one, subject))
            on_outcome(outcomes[-1])
    return outcomes


async def _attempt(one: Check, subject: Subject) -> Outcome:
    started = time.perf_counter()
    failure = ""
    try:
        # Twice the limit of one answer: a check may ask more than once, side by side.
        async with asyncio.timeout(2 * subject.timeout):
            await one.attempt(subject)
    except RequirementError as broken:
        failure = str(broken)
    except TimeoutError:
        failure = f"no answer within {2 * subject.timeout:g} seconds"
    except grpc.aio.AioRpcError as error:
        failure = f"the call failed with {error.code().name}: {error.details()}"
    return Outcome(check=one, failure=failure, seconds=time.perf_counter() - started)
