"""The checks of contracts of one request and one answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.conformance.common import Calls, call_checks, identity_checks, provenance_checks
from dramaturg.conformance.kit import Subject, Suite, require
from dramaturg.judge.protocols import MAX_ANSWER_BYTES


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
    remedy: str
    """What a well-formed answer is, in a sentence."""
    answer_bytes: int = MAX_ANSWER_BYTES
    """The most bytes of an answer."""


def unary_suite(contract: UnaryContract) -> Suite:
    """The checks of a contract."""

    def call(subject: Subject, request: Any, timeout: float | None = None) -> Any:
        sent = type(request)()
        sent.CopyFrom(request)
        sent.options.model = subject.model
        return contract.method(subject.channel)(sent, timeout=timeout or subject.timeout)

    async def answer(subject: Subject, request: Any, timeout: float | None = None) -> Any:
        response = await call(subject, request, timeout)
        # gRPC hands over None where the bytes do not parse as the response.
        require(response is not None, "the response is not a message of the contract")
        return response

    async def send(subject: Subject, text: str, timeout: float | None = None) -> Any:
        return await answer(subject, contract.example(text), timeout)

    async def ask(subject: Subject, text: str, timeout: float | None = None) -> Any:
        request = contract.example(text)
        response = await answer(subject, request, timeout)
        contract.require_sound(request, response)
        return response

    async def ask_largest(subject: Subject) -> None:
        response = await answer(subject, contract.largest)
        subject.largest_answers.append(response)
        contract.require_sound(contract.largest, response)

    suite = Suite()
    calls = Calls(
        send,
        ask,
        ask_largest,
        invalid=lambda subject: [
            (partial(call, subject, request), field) for request, field in contract.invalid
        ],
        provenance=contract.provenance,
        answer_bytes=contract.answer_bytes,
    )
    identity_checks(suite, calls)

    @suite.check("An ordinary request has a well-formed answer.", remedy=contract.remedy)
    async def answers_well_formed(subject: Subject) -> None:
        await ask(subject, "Heat the water.")

    @suite.check(
        "A request without content that the contract allows has a well-formed answer.", remedy=contract.remedy
    )
    async def answers_empty_input(subject: Subject) -> None:
        for request in contract.empty:
            contract.require_sound(request, await answer(subject, request))

    provenance_checks(suite, calls)
    call_checks(suite, calls)
    return suite
