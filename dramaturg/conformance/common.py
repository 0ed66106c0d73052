"""The requirements that all contracts share: identity, provenance, possible usage, details of errors."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest, Identity
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.conformance.kit import NotApplicableError, RequirementError, Subject, Suite, require
from dramaturg.judge.protocols import CALLS_MODELS, MAX_ANSWER_BYTES, MAX_CALL_TOKENS
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.service.validation import violations

SEMANTIC_VERSION = re.compile(r"\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?")
KEBAB_CASE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SNAKE_CASE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")

EVERY_PLANE = "".join(
    # The last code point of a plane is a noncharacter. Surrogates are not characters.
    f"{chr((plane << 16) + 0x2F)}{chr((plane << 16) + 0xF900)}{chr((plane << 16) + 0xFFFF)} "
    for plane in range(17)
)
"""Characters of each of the 17 planes of Unicode, private and unassigned ones among them."""
UNUSUAL_TEXTS = (
    EVERY_PLANE,
    "\x00\x1b[2J\u202e\u200b\ufeff",
    "把热水倒在茶包上。",
    "🙂" * 50,
    "e" + "\u0301" * 500,
)
"""Texts that are valid in a message and rare in tests."""


async def fetch_identity(subject: Subject) -> Identity:
    """Asks the server under test for its identity, and keeps it."""
    request = GetIdentityRequest(contract=subject.role.contract)
    response = await IdentityServiceStub(subject.channel).GetIdentity(request, timeout=subject.timeout)
    subject.identities[:] = [response.identity]
    return response.identity


async def identity(subject: Subject) -> Identity:
    """The identity of the server under test, which is asked for once."""
    return subject.identities[0] if subject.identities else await fetch_identity(subject)


async def check_health(subject: Subject, channel: grpc.aio.Channel | None = None) -> str:
    """The name of the status that the health service reports for the contract."""
    request = health_pb2.HealthCheckRequest(service=subject.role.contract)
    stub = health_pb2_grpc.HealthStub(channel or subject.channel)
    response = await stub.Check(request, timeout=subject.timeout)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


def require_identity(answer: Identity, subject: Subject) -> None:
    """Requires that an identity is well formed: name, version, contract and the form of its criteria."""
    require(KEBAB_CASE.fullmatch(answer.name) is not None, f"name {answer.name!r} is not in kebab case")
    require(
        SEMANTIC_VERSION.fullmatch(answer.version) is not None,
        f"version {answer.version!r} is not of the form 1.2.3",
    )
    require(answer.contract == subject.role.contract, f"contract is {answer.contract!r}")
    wrong = [one for one in answer.criteria if SNAKE_CASE.fullmatch(one) is None]
    require(not wrong, f"criteria {wrong} are not in lower snake case")


def require_signed(provenance: Provenance, answer: Identity) -> None:
    """Requires that provenance names who answered as the identity does, and the model calls if any."""
    for field in ("name", "version", "contract"):
        seen, wanted = getattr(provenance, field), getattr(answer, field)
        require(seen == wanted, f"provenance.{field} is {seen!r}, the identity's is {wanted!r}")
    if CALLS_MODELS in answer.capabilities:
        require(bool(provenance.completions), "provenance.completions is empty though the judge calls models")
        require(bool(provenance.prompts), "provenance.prompts is empty though the judge calls models")


def require_possible_usage(usage: Usage, calls: int) -> None:
    """Requires that usage is finite, not negative, and of this number of model calls."""
    for field in ("cost_usd", "unused_cost_usd", "estimated_cost_usd"):
        cost = getattr(usage, field)
        require(math.isfinite(cost) and cost >= 0.0, f"usage.{field} is {cost}")
    for field in ("prompt_token_count", "completion_token_count"):
        tokens = getattr(usage, field)
        require(tokens <= calls * MAX_CALL_TOKENS, f"usage.{field} is {tokens} for {calls} model calls")
    require(
        usage.cached_prompt_token_count <= usage.prompt_token_count,
        f"usage.cached_prompt_token_count is {usage.cached_prompt_token_count} "
        f"of {usage.prompt_token_count} prompt tokens",
    )
    require(bool(calls) or not usage.cost_usd, f"usage.cost_usd is {usage.cost_usd} without a model call")


async def refusal(call: Awaitable[Any]) -> ServiceError:
    """The error of a call that must fail.

    Raises:
        RequirementError: It was answered.
    """
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    raise RequirementError("the request was answered")


async def require_refused(call: Awaitable[Any], field: str) -> None:
    """Requires that a call is refused as invalid, with an ErrorInfo and a BadRequest that names the field."""
    error = await refusal(call)
    require(error.code == grpc.StatusCode.INVALID_ARGUMENT, f"the code is {error.code.name}")
    require(
        error.reason == ErrorReason.ERROR_REASON_FIELD_INVALID,
        f"the ErrorInfo's reason is {error.reason_name}",
    )
    fields = [violation.field for violation in error.violations]
    require(field in fields, f"the BadRequest names {fields}, not {field}")


SHORT_DEADLINES = (0.001, 0.01, 0.1)
"""Deadlines in seconds: the first passes before most servers have read the call, the last one within it."""
CANCELLED_AFTER = (0.05, 0.2, 0.5)
"""The seconds after which calls are cancelled: on a busy machine the server has the first one later."""
CALLS_UNDER_WAY = 50
"""The calls that a server has when it is stopped."""
_REMEDY_CONCURRENCY = "Keep the state of a call in the call; queue calls above the concurrency of the server."
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_BUSY = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)


CLIENT_MESSAGE_BYTES = 4 << 20
"""The largest message that gRPC clients of most languages read by default."""


class ItemError(RequirementError):
    """An answer has an error in place of a result."""

    def __init__(self, message: str, error: ServiceError) -> None:
        super().__init__(f"{message} {error!r}")
        self.error = error


class Ask(Protocol):
    """Sends an ordinary request and returns its answer."""

    def __call__(self, subject: Subject, text: str, timeout: float | None = None) -> Awaitable[Any]:
        """Sends a request that contains a text.

        Args:
            subject: The server.
            text: The text.
            timeout: The time limit in seconds; default: that of the subject.

        Raises:
            RequirementError: There is no answer to the request.
            ItemError: An error stands in the place of the answer.
            grpc.aio.AioRpcError: The call failed.
        """


@dataclass(frozen=True)
class Calls:
    """The calls to a service that the checks of all contracts make."""

    send: Ask
    """Whose answers may be of any form."""
    ask: Ask
    """Whose answers must be well formed and those to the request, else RequirementError."""
    ask_largest: Callable[[Subject], Awaitable[None]]
    """Sends requests of the largest size, whose answers must be well formed, and adds their messages to
    ``Subject.largest_answers``."""
    invalid: Callable[[Subject], Sequence[tuple[Callable[[], Awaitable[Any]], str]]]
    """Calls with requests that the contract forbids, each with the path of the field that is wrong."""
    provenance: Callable[[Any], Provenance] | None = None
    """The provenance of an answer of ``send``. None: answers have none."""
    require_identity: Callable[[Identity, Subject], None] = lambda *_: None
    """Raises RequirementError unless the identity has what the contract needs besides."""
    answer_bytes: int = MAX_ANSWER_BYTES
    """The most bytes of a message of an answer."""


def identity_checks(suite: Suite, calls: Calls) -> None:
    """Adds the checks of health and identity, the first ones of each contract."""
    check = suite.check

    @check(
        "The server reports the contract as SERVING through grpc.health.v1.Health.",
        remedy="Serve grpc.health.v1.Health and set the contract's full name to SERVING.",
    )
    async def health(subject: Subject) -> None:
        status = await check_health(subject)
        require(status == "SERVING", f"the health of {subject.role.contract} is {status}")

    @check(
        "IdentityService names the implementation, its version, its contract and the criteria of a judge.",
        remedy="Serve IdentityService: name in kebab-case, version 1.2.3, contract, criteria in snake_case.",
    )
    async def says_who_it_is(subject: Subject) -> None:
        answer = await fetch_identity(subject)
        require_identity(answer, subject)
        calls.require_identity(answer, subject)


def provenance_checks(suite: Suite, calls: Calls) -> None:
    """Adds the checks of provenance and usage."""
    check = suite.check
    read = calls.provenance
    assert read is not None

    @check(
        "Provenance names the implementation as its identity does, and the model calls if it makes any.",
        remedy="Set name, version and contract; completions and prompts too if models are called.",
    )
    async def says_where_answers_come_from(subject: Subject) -> None:
        require_signed(read(await calls.send(subject, "Heat the water.")), await identity(subject))

    @check(
        "The usage is possible: not negative, not above ten million tokens a call, none without model calls.",
        remedy="Copy the usage of the answers of GenerationService; leave it empty where no model is called.",
    )
    async def reports_possible_usage(subject: Subject) -> None:
        provenance = read(await calls.send(subject, "Heat the water."))
        require_possible_usage(provenance.usage, len(provenance.completions))


def call_checks(suite: Suite, calls: Calls) -> None:
    """Adds the checks of texts, sizes, errors, deadlines, cancellation, concurrency, overload and drain."""
    check = suite.check

    @check(
        "Characters of every Unicode plane, control characters and other scripts have a well-formed answer.",
        remedy="Pass every character on, or replace what the model cannot read; do not fail the call.",
    )
    async def bears_every_plane(subject: Subject) -> None:
        for text in UNUSUAL_TEXTS:
            await calls.ask(subject, text)

    @check(
        "Requests of the largest size have well-formed answers.",
        remedy="Accept every length up to the limits of the contract; cut what the model cannot read.",
    )
    async def answers_the_largest_input(subject: Subject) -> None:
        await calls.ask_largest(subject)

    @check(
        "Answers to requests of the largest size keep to the limits of the contract, and to its size.",
        remedy="Cut rationales, lists and raw texts of models before the answer is sent.",
    )
    async def keeps_answers_small(subject: Subject) -> None:
        if not subject.largest_answers:
            raise NotApplicableError("no request of the largest size was answered")
        for answer in subject.largest_answers:
            size = answer.ByteSize()
            require(
                size <= calls.answer_bytes,
                f"an answer has {size} bytes; at most {calls.answer_bytes} are read",
            )
            for violation in violations(answer):
                raise RequirementError(f"{violation.field} of an answer {violation.description}")

    @check(
        "Invalid requests are refused with INVALID_ARGUMENT, an ErrorInfo and the field's path.",
        remedy="Check the limits of the contract first; name the field in a BadRequest with an ErrorInfo.",
    )
    async def refuses_bad_requests(subject: Subject) -> None:
        await identity(subject)
        for call, field in calls.invalid(subject):
            await require_refused(call(), field)

    @check(
        "A call with a short deadline is answered or ends with DEADLINE_EXCEEDED, and the next is answered.",
        remedy="Keep to the deadline of the call, and release what it holds when it ends.",
    )
    async def keeps_to_deadlines(subject: Subject) -> None:
        await identity(subject)
        for seconds in SHORT_DEADLINES:
            try:
                await calls.send(subject, "Heat the water.", timeout=seconds)
            except grpc.aio.AioRpcError as error:
                code = error.code()
                require(
                    code is grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"a call with a deadline of {seconds:g} seconds fails with {code.name}",
                )
        await calls.send(subject, "Heat the water.")

    @check("Twenty calls at once are all answered, each by its own request.", remedy=_REMEDY_CONCURRENCY)
    async def keeps_calls_apart(subject: Subject) -> None:
        await asyncio.gather(*(calls.ask(subject, f"Cup number {n}.") for n in range(20)))

    @check(
        "Of too many calls at once each is answered, or refused with RESOURCE_EXHAUSTED or UNAVAILABLE and "
        "an ErrorInfo; health is answered meanwhile, and calls after them too.",
        remedy="Refuse calls above a limit with RESOURCE_EXHAUSTED, ErrorInfo and RetryInfo; health never.",
    )
    async def sheds_load(subject: Subject) -> None:
        await identity(subject)
        burst = [asyncio.ensure_future(calls.send(subject, "Pour the water.")) for _ in range(subject.burst)]
        async with _ended(burst):
            async with open_channel(subject.target) as probe:
                await check_health(subject, probe)
            await _require_answered_or_refused(burst)
        await calls.send(subject, "Heat the water.")

    @check(
        "Cancelled calls leave the server able to answer.",
        remedy="Stop the work of a call that is cancelled, and release what it holds.",
    )
    async def survives_cancellation(subject: Subject) -> None:
        await identity(subject)
        for seconds in CANCELLED_AFTER:
            cancelled = asyncio.ensure_future(calls.ask_largest(subject))
            await asyncio.wait([cancelled], timeout=seconds)
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
        await calls.send(subject, "Heat the water.")

    @check(
        "After SIGTERM calls in progress are answered, the health is NOT_SERVING, and the process ends.",
        remedy="On SIGTERM report NOT_SERVING to watchers, refuse new calls, end the others, then exit.",
    )
    async def drains(subject: Subject) -> None:
        process = subject.process
        if process is None:
            raise NotApplicableError("the kit did not start the server; it does with its command")
        await identity(subject)
        async with open_channel(subject.target) as watching:
            statuses: list[int] = []
            is_watched = asyncio.Event()
            watch = asyncio.ensure_future(_watch(subject, watching, statuses, is_watched))
            async with _ended([watch]):
                await is_watched.wait()
                under_way = [
                    asyncio.ensure_future(calls.send(subject, "Drink the tea."))
                    for _ in range(CALLS_UNDER_WAY)
                ]
                async with _ended(under_way):
                    await asyncio.sleep(0)
                    # The calls are sent. The answer of a later one shows that the server has them.
                    await check_health(subject)
                    process.stop()
                    await _require_answered_or_refused(under_way)
                await asyncio.wait([watch], timeout=subject.timeout / 2)
                code = watch.result() if watch.done() else grpc.StatusCode.OK
        # Clients watch the health of the server as long as they are connected, which some servers wait for.
        await subject.channel.close()
        try:
            await asyncio.wait_for(process.ended(), subject.timeout)
        except TimeoutError:
            raise RequirementError(f"the process runs {subject.timeout:g} seconds after SIGTERM") from None
        require(
            code is grpc.StatusCode.UNIMPLEMENTED or _NOT_SERVING in statuses,
            "a watch of the health did not get NOT_SERVING",
        )


@asynccontextmanager
async def _ended(tasks: Sequence[asyncio.Future[Any]]) -> AsyncIterator[None]:
    """Cancels what is left of tasks at the end, and waits for them."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _require_answered_or_refused(calls: Sequence[asyncio.Future[Any]]) -> None:
    results = await asyncio.gather(*calls, return_exceptions=True)
    problems = [problem for result in results if (problem := _loss(result))]
    if problems:
        raise RequirementError(f"{len(problems)} of {len(calls)} calls at once are lost; one {problems[0]}")


def _loss(result: object) -> str:
    """How a call ended that was neither answered nor refused in form. Empty: it was."""
    if isinstance(result, ItemError):
        error = result.error
    elif isinstance(result, grpc.aio.AioRpcError):
        error = from_rpc_error(result)
    elif isinstance(result, BaseException):
        return f"has a bad answer: {result}"
    else:
        return ""
    if error.code not in _BUSY:
        return f"fails with {error.code.name}: {error.message}"
    return "" if error.reason else f"fails with {error.code.name} without an ErrorInfo: {error.message}"


async def _watch(
    subject: Subject, channel: grpc.aio.Channel, statuses: list[int], is_watched: asyncio.Event
) -> grpc.StatusCode:
    """Collects the statuses of a watch of the health until NOT_SERVING; returns how the call ended.

    A server may count an open watch as a call in progress.
    """
    request = health_pb2.HealthCheckRequest(service=subject.role.contract)
    try:
        call = health_pb2_grpc.HealthStub(channel).Watch(request)
        async for response in call:
            statuses.append(response.status)
            is_watched.set()
            if response.status == _NOT_SERVING:
                call.cancel()
                break
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        is_watched.set()
    return grpc.StatusCode.OK
