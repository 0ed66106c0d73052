"""The frame of the conformance kit: what a check is, and how all of them are run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import Message

from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.conformance.processes import ServerProcess
from dramaturg.judge.roles import Role
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings

BURST = 200
"""The calls at once of the check of overload, by default."""


class RequirementError(Exception):
    """A requirement does not hold; the message says how, with what was seen."""


class NotApplicableError(Exception):
    """A requirement does not apply or cannot be tried; the message gives the reason."""


@dataclass(frozen=True)
class Subject:
    """The server under test."""

    role: Role
    """The role whose contract it should keep."""
    target: str
    """Its address."""
    channel: grpc.aio.Channel
    """An open channel to it."""
    model: str
    """The model that it is asked to use. Empty: its own default."""
    timeout: float
    """The most seconds that one of its answers may take."""
    burst: int = BURST
    """The calls at once of the check of overload."""
    process: ServerProcess | None = None
    """Its process, if the kit started it."""
    identities: list[Identity] = field(default_factory=list)
    """Its identity, once a check has asked for it."""
    largest_answers: list[Message] = field(default_factory=list)
    """Its answers to requests of the largest size."""


@dataclass(frozen=True)
class Check:
    """One requirement and how it is tried."""

    name: str
    """Its name, in kebab case."""
    requirement: str
    """What must hold, in a sentence."""
    remedy: str
    """How a server that breaks it is mended, in a sentence."""
    attempt: Callable[[Subject], Awaitable[None]]
    """Tries it. Raises :class:`RequirementError` where it does not hold, :class:`NotApplicableError` where it
    cannot be tried."""


@dataclass(frozen=True)
class Outcome:
    """The result of one check: the requirement holds, is broken, or was not tried."""

    check: Check
    """The check."""
    failure: str
    """How the requirement does not hold. Empty: it does, or it was not tried."""
    seconds: float
    """How long the check took."""
    skipped: str = ""
    """Why the requirement was not tried. Empty: it was."""

    @property
    def broken(self) -> bool:
        """Whether the requirement does not hold."""
        return bool(self.failure)

    @property
    def passed(self) -> bool:
        """Whether the requirement was tried and holds."""
        return not self.failure and not self.skipped


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

    def check(self, requirement: str, *, remedy: str) -> Callable[[Attempt], Attempt]:
        """Registers the decorated coroutine function as the check of a requirement, and the remedy."""

        def register(attempt: Attempt) -> Attempt:
            name = getattr(attempt, "__name__", "").replace("_", "-")
            self.checks.append(Check(name=name, requirement=requirement, remedy=remedy, attempt=attempt))
            return attempt

        return register


async def run_checks(
    checks: Sequence[Check],
    role: Role,
    target: str,
    *,
    model: str = "",
    timeout: float = 60.0,
    burst: int = BURST,
    process: ServerProcess | None = None,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Sequence[Outcome]:
    """Runs checks against a server.

    Args:
        checks: The checks.
        role: The role whose contract the server should keep.
        target: Where the server listens, such as ``localhost:50099``.
        model: The model that it is asked to use. Empty: its own default.
        timeout: The most seconds that one of its answers may take.
        burst: The calls at once of the check of overload.
        process: The process of the server, if it may be stopped.
        on_outcome: Called with each outcome as soon as it is known.

    Returns:
        One outcome for each check, in order.
    """
    outcomes = []
    async with open_channel(target, _settings()) as channel:
        subject = Subject(role, target, channel, model, timeout, burst, process)
        for one in checks:
            outcomes.append(await _attempt(one, subject))
            on_outcome(outcomes[-1])
    return outcomes


def _settings() -> ChannelSettings:
    """Reads twice what other clients read: a check tells the size of an answer that is too large."""
    settings = ChannelSettings()
    return settings.model_copy(update={"max_message_bytes": 2 * settings.max_message_bytes})


async def _attempt(one: Check, subject: Subject) -> Outcome:
    started = time.perf_counter()
    failure = skipped = ""
    try:
        # Twice the limit of one answer: a check may ask more than once, side by side.
        async with asyncio.timeout(2 * subject.timeout):
            await one.attempt(subject)
    except RequirementError as broken:
        failure = str(broken)
    except NotApplicableError as reason:
        skipped = str(reason)
    except TimeoutError:
        failure = f"no answer within {2 * subject.timeout:g} seconds"
    except grpc.aio.AioRpcError as error:
        failure = f"the call failed with {error.code().name}: {error.details()}"
    return Outcome(check=one, failure=failure, seconds=time.perf_counter() - started, skipped=skipped)
