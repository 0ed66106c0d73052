"""The requirements that all contracts of one request and one answer share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.conformance.basics import (
    MEND_BAD_REQUESTS,
    MEND_CONCURRENCY,
    MEND_HEALTH,
    MEND_PROVENANCE,
    MEND_TEXTS,
    MEND_USAGE,
    UNUSUAL_TEXTS,
    identity,
    require_identity,
    require_refused,
    require_sane_usage,
    require_serving,
    require_signed,
)
from dramaturg.conformance.kit import Subject, Suite, require


@dataclass(frozen=True)
class UnaryContract:
    """A contract with one method, which answers one request with one response."""

    method: Callable[[grpc.aio.Channel], Any]
    """The method of the generated stub."""
    example: Callable[[str], Any]
    """An ordinary request that contains a text."""
    empty: Sequence[Any]
    """Requests without content that the contract allows."""
    largest: Any
    """A request of the size that the contract allows."""
    invalid: Sequence[tuple[Any, str]]
    """Requests that the contract forbids, each with the path of the field that is wrong."""
    require_sound: Callable[[Any, Any], None]
    """Raises RequirementError unless a response, the second argument, is a well-formed answer."""
    provenance: Callable[[Any], Provenance]
    """The provenance of a response."""
    mend: str
    """What a well-formed answer is, in a sentence."""


def unary_suite(contract: UnaryContract) -> Suite:
    """The checks of a contract."""
    suite = Suite()
    check = suite.check

    def call(subject: Subject, request: Any, timeout: float | None = None) -> Any:
        sent = type(request)()
        sent.CopyFrom(request)
        sent.options.model = subject.model
        return contract.method(subject.channel)(sent, timeout=timeout or subject.timeout)

    async def ask(subject: Subject, request: Any) -> Any:
        response = await call(subject, request)
        # gRPC hands over None where the bytes do not parse as the response.
        require(response is not None, "the response is not a message of the contract")
        contract.require_sound(request, response)
        return response

    @check("The server reports the contract as SERVING through grpc.health.v1.Health.", mend=MEND_HEALTH)
    async def health(subject: Subject) -> None:
        await require_serving(subject)

    @check(
        "IdentityService names the service, its version and its contract.",
        mend="Serve IdentityService: name in kebab-case, version as 1.2.3, contract.",
    )
    async def says_who_it_is(subject: Subject) -> None:
        require_identity(await identity(subject), subject, needs_criteria=False)

    @check("An ordinary request has a well-formed answer.", mend=contract.mend)
    async def answers_well_formed(subject: Subject) -> None:
        await ask(subject, contract.example("Heat the water."))

    @check(
        "Provenance names the service as its identity does, and the model calls of one that makes any.",
        mend=MEND_PROVENANCE,
    )
    async def says_where_answers_come_from(subject: Subject) -> None:
        response = await call(subject, contract.example("Heat the water."))
        require_signed(contract.provenance(response), await identity(subject))

    @check(
        "The usage is possible: not negative, not above ten million tokens a call, none without model calls.",
        mend=MEND_USAGE,
    )
    async def reports_possible_usage(subject: Subject) -> None:
        response = await call(subject, contract.example("Heat the water."))
        require_sane_usage(contract.provenance(response))

    @check("A request without content that the contract allows has a well-formed answer.", mend=contract.mend)
    async def answers_empty_input(subject: Subject) -> None:
        for request in contract.empty:
            await ask(subject, request)

    @check(
        "A request of the largest size has a well-formed answer.",
        mend="Accept every length up to the limits of the contract; cut what the model cannot read.",
    )
    async def answers_the_largest_input(subject: Subject) -> None:
        await ask(subject, contract.largest)

    @check(
        "Characters of every Unicode plane, control characters and other scripts have a well-formed answer.",
        mend=MEND_TEXTS,
    )
    async def bears_every_plane(subject: Subject) -> None:
        for text in UNUSUAL_TEXTS:
            await ask(subject, contract.example(text))

    @check(
        "Invalid requests are refused with INVALID_ARGUMENT, an ErrorInfo and the field's path.",
        mend=MEND_BAD_REQUESTS,
    )
    async def refuses_bad_requests(subject: Subject) -> None:
        for request, field in contract.invalid:
            await require_refused(call(subject, request), field)

    @check(
        "A call whose deadline is too short ends with DEADLINE_EXCEEDED, and the next is answered.",
        mend="Keep to the deadline of the call, and release what it holds when it ends.",
    )
    async def keeps_to_deadlines(subject: Subject) -> None:
        try:
            await call(subject, contract.example("Heat the water."), timeout=0.001)
        except grpc.aio.AioRpcError as error:
            code = error.code()
            require(
                code is grpc.StatusCode.DEADLINE_EXCEEDED,
                f"a call with a deadline of a millisecond fails with {code.name}",
            )
        await call(subject, contract.example("Heat the water."))

    @check("Twenty calls at once are all answered, each by its own request.", mend=MEND_CONCURRENCY)
    async def keeps_calls_apart(subject: Subject) -> None:
        await asyncio.gather(*(ask(subject, contract.example(f"Cup number {n}.")) for n in range(20)))

    @check(
        "Cancelled calls leave the server able to answer.",
        mend="Stop the work of a call that is cancelled, and release what it holds.",
    )
    async def survives_cancellation(subject: Subject) -> None:
        calls = [asyncio.ensure_future(_of(call(subject, contract.largest))) for _ in range(3)]
        await asyncio.wait(calls, timeout=0.05)
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await call(subject, contract.example("Heat the water."))

    return suite


async def _of(call: Any) -> Any:
    return await call
