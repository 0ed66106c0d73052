"""The frame of the conformance kit: checks, how all are run, servers of its own, outcomes as JUnit XML."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.etree import ElementTree as ET

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.judge.roles import Role
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings

PORT_VARIABLES = ("PORT", "DRAMATURG_SERVER_PORT")
"""The environment variables with the port that a started server must listen on."""
CONNECT_SECONDS = 5.0
"""How long a connection to the address of a server may take."""
_POLL_SECONDS = 0.05
# gRPC itself tries to connect again after a second, then later.
_BACKOFF = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50)]
_OUTPUT_BYTES = 2000
"""The end of a server's output that is part of the error."""


class StartError(Exception):
    """No server answers at the address; or the command starts none, and the message ends with its output."""


class ServerProcess:
    """A running server.

    Attributes:
        target: Its address.
    """

    def __init__(self, target: str, process: asyncio.subprocess.Process) -> None:
        self.target = target
        self._process = process

    @property
    def exit_code(self) -> int | None:
        """The exit code; negative: the signal that ended it. None: it runs."""
        return self._process.returncode

    def stop(self) -> None:
        """Sends SIGTERM to the process itself, as Kubernetes does."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    async def ended(self) -> int:
        """Waits for the end of the process and returns its exit code."""
        return await self._process.wait()

    def kill(self) -> None:
        """Ends the process and those that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


@asynccontextmanager
async def started(
    command: str | Sequence[str], contract: str, *, timeout: float = 60.0
) -> AsyncIterator[ServerProcess]:
    """Starts a server on a free port of this machine, and ends it.

    Args:
        command: The command, without a shell. ``{port}`` in it is replaced by the port, which the environment
            variables of ``PORT_VARIABLES`` have too. A text is split like a shell would.
        contract: The full name of the contract, whose health is waited for.
        timeout: The most seconds until the server is serving. After them it is taken as it is, if it listens.

    Raises:
        StartError: The command cannot be started, ended, or does not listen in time.
    """
    words = shlex.split(command) if isinstance(command, str) else list(command)
    port = _free_port()
    with tempfile.TemporaryFile() as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *(word.replace("{port}", str(port)) for word in words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **dict.fromkeys(PORT_VARIABLES, str(port))},
                start_new_session=True,
            )
        except (OSError, IndexError, TypeError) as error:
            raise StartError(f"the command {shlex.join(words)!r} cannot be started: {error}") from error
        server = ServerProcess(f"127.0.0.1:{port}", process)
        try:
            await _until_serving(server, contract, timeout, output)
            yield server
        finally:
            server.kill()
            await server.ended()


@asynccontextmanager
async def reached(
    target: str, command: str | Sequence[str], contract: str, *, timeout: float
) -> AsyncIterator[tuple[str, ServerProcess | None]]:
    """The address of a server, and its process where a command starts it.

    Raises:
        ValueError: Not one of address and command is given.
        StartError: No server answers at the address, or the command does not start one.
    """
    if bool(target) == bool(command):
        raise ValueError("give the address of the server, or the command that starts it")
    if target:
        async with open_channel(target) as channel:
            try:
                await asyncio.wait_for(channel.channel_ready(), CONNECT_SECONDS)
            except TimeoutError as error:
                raise StartError(
                    f"no connection to {target} within {CONNECT_SECONDS:g} seconds: start the server, or "
                    "correct the address or the TLS settings"
                ) from error
        yield target, None
    else:
        async with started(command, contract, timeout=timeout) as process:
            yield process.target, process


async def _until_serving(server: ServerProcess, contract: str, timeout: float, output: BinaryIO) -> None:
    request = health_pb2.HealthCheckRequest(service=contract)
    serving = health_pb2.HealthCheckResponse.SERVING
    loop = asyncio.get_running_loop()
    deadline, listens = loop.time() + timeout, False
    async with grpc.aio.insecure_channel(server.target, options=_BACKOFF) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while loop.time() < deadline:
            if server.exit_code is not None:
                raise StartError(f"the server ended with exit code {server.exit_code}{_end_of(output)}")
            try:
                listens = True
                if (await health.Check(request, timeout=timeout)).status == serving:
                    return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    return  # it listens, and has no such health: a check says so
                listens = False
            await asyncio.sleep(_POLL_SECONDS)
    if not listens:
        raise StartError(f"the server does not listen on {server.target}{_end_of(output)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_of(output: BinaryIO) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - _OUTPUT_BYTES))
    text = output.read().decode(errors="replace").strip()
    return f"; its output ends with:\n{text}" if text else ""


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


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML 1.0 does not have, for example U+0000."""


def junit_xml(role: str, target: str, outcomes: Sequence[Outcome]) -> str:
    """A document with one ``testsuite`` and one ``testcase`` for each check.

    The message of a failure is the requirement. Its text says what was seen and the remedy. A character
    that XML does not have is replaced by U+FFFD.

    Args:
        role: The role that was checked.
        target: The address of the server.
        outcomes: The outcomes, in the order of the test cases.
    """
    suite = ET.Element(
        "testsuite",
        name=_text(f"dramaturg judges check {role}"),
        tests=str(len(outcomes)),
        failures=str(sum(one.broken for one in outcomes)),
        errors="0",
        skipped=str(sum(bool(one.skipped) for one in outcomes)),
        time=f"{sum(one.seconds for one in outcomes):.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="target", value=_text(target))
    for one in outcomes:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_text(f"conformance.{role}"),
            name=one.check.name,
            time=f"{one.seconds:.3f}",
        )
        if one.skipped:
            ET.SubElement(case, "skipped", message=_text(one.skipped))
        if one.broken:
            failure = ET.SubElement(case, "failure", type="requirement", message=one.check.requirement)
            failure.text = _text(f"{one.failure}\nRemedy: {one.check.remedy}")
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _text(value: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value)
