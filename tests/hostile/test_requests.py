"""Every field of every public request, hostile: limits hold, no internal error, and others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from dramaturg.service.errors import Violation
from dramaturg.service.validation import violations
from tests.hostile.gateway import PublicGateway, ask, public_gateway, public_methods, watched
from tests.hostile.requests import Mutation, empty, filled, lists, mutations
from tests.support.fleet import report
from tests.support.growth import faster_than_linear

METHODS = {f"{one.containing_service.name}.{one.name}": one for one in public_methods()}
DEFECTS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})
MAX_MESSAGE_BYTES = 16 << 20
AT_ONCE = 8
SHORT_FORM, SHORT_BYTES = 30, 1 << 20
"""The short form sends one of this number of requests to the gateway, and none of a million elements."""
FEW = 5_000
KEPT_SHARE, NOISE_MB = 0.5, 32
"""The most that a second pass over the same requests may add to the memory: this share of the first growth,
and noise."""
DAMAGED = {
    "cut": b"\x0a\xff",
    "a text that is not UTF-8": b"\x0a\x02\xff\xfe",
    "a number without an end": b"\x08" + b"\xff" * 20,
    "a field of number 0": b"\x02\x00",
    "groups in groups": b"\x0b" * 100_000,
    "messages in messages": b"\x0a\x02" * 5000,
    "an unknown field of a megabyte": b"\xfa\x3f\x80\x80\x40" + b"x" * (1 << 20),
    "a million unknown fields": b"\xf8\x3f\x01" * (1 << 20),
}
"""Bytes that are no message, or one with unknown fields."""


def concerns(violation: Violation, mutation: Mutation) -> bool:
    """Whether a violation names the changed field."""
    is_count = mutation.label.split()[-1] in {"entries", "elements", "messages"}
    return violation.field == mutation.field or (
        not is_count and violation.field.startswith(f"{mutation.field}[")
    )


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_limits_of_a_field_hold_exactly(method: MethodDescriptor) -> None:
    wrong = []
    # The limit of a list holds whatever its messages are, and empty ones are quick to check.
    for mutation in mutations(filled(method.input_type), element=empty):
        found = any(concerns(one, mutation) for one in violations(mutation.request))
        if mutation.allowed is not None and found == mutation.allowed:
            wrong.append(f"{mutation.field}: {mutation.label}: {'refused' if found else 'passes'}")
    assert not wrong


def read(data: bytes, request_type: type[Message]) -> None:
    """Reads a message and checks it."""
    violations(request_type.FromString(data))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_time_to_read_and_check_a_list_grows_with_its_length(method: MethodDescriptor) -> None:
    slow = []
    request = filled(method.input_type)
    for (field, short), (_, long) in zip(lists(request, FEW), lists(request, 2 * FEW), strict=True):
        once, twice = (partial(read, one.SerializeToString(), type(request)) for one in (short, long))
        if growth := faster_than_linear(once, twice):
            slow.append(f"{field}: {growth}")
    assert not slow


async def send_all(
    gateway: PublicGateway, requests: Iterable[tuple[MethodDescriptor, str, Any]]
) -> tuple[int, list[str]]:
    """Sends requests, some at once; returns their number and the internal errors."""
    defects: list[str] = []
    waiting = iter(requests)
    sent = 0

    async def work() -> None:
        nonlocal sent
        for method, label, request in waiting:
            error = await ask(gateway.hostile, method, request)
            sent += 1
            if error is not None and error.code() in DEFECTS:
                defects.append(f"{method.name}: {label}: {error.code().name}: {error.details()}")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return sent, defects


def hostile_requests(
    gateway: PublicGateway,
    methods: Sequence[MethodDescriptor],
    one_of: int = 1,
    most_bytes: int = MAX_MESSAGE_BYTES,
) -> Iterable[tuple[MethodDescriptor, str, Any]]:
    """Requests with one hostile field that fit into a message: all, or one of so many."""
    for method in methods:
        for mutation in mutations(gateway.request(method), one_of=one_of):
            if mutation.request.ByteSize() < most_bytes:
                yield method, f"{mutation.field}: {mutation.label}", mutation.request


def large_requests(gateway: PublicGateway) -> Iterable[tuple[MethodDescriptor, str, Any]]:
    """The hostile requests of over 100 kB that the contracts allow."""
    for method, label, request in hostile_requests(gateway, [*METHODS.values()]):
        if request.ByteSize() > 100_000 and method.containing_service.name == "EvaluationService":
            yield method, label, request


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@pytest.mark.timeout(240)
async def test_no_field_breaks_a_method_or_fails_another_tenant(tmp_path: Path) -> None:
    async with public_gateway(tmp_path) as gateway:
        async with watched(gateway.good) as failures:
            requests = hostile_requests(gateway, [*METHODS.values()], SHORT_FORM, SHORT_BYTES)
            sent, defects = await send_all(gateway, requests)
        report(requests=sent, defects=len(defects))
    assert not defects
    assert not failures


@pytest.mark.endurance
@pytest.mark.timeout(600)
async def test_no_value_of_a_field_breaks_a_method_or_stays_in_memory(tmp_path: Path) -> None:
    async with public_gateway(tmp_path) as gateway, watched(gateway.good) as failures:
        before = resident_mb()
        requests = hostile_requests(gateway, [*METHODS.values()])
        sent, defects = await send_all(gateway, requests)
        first = resident_mb() - before
        await send_all(gateway, large_requests(gateway))
        before = resident_mb()
        await send_all(gateway, large_requests(gateway))
        second = resident_mb() - before
        report(requests=sent, first_growth_mb=first, second_growth_mb=second, defects=len(defects))
    assert not defects
    assert not failures
    assert second < max(first, 0.0) * KEPT_SHARE + NOISE_MB


REFUSED = {"a number without an end", "a field of number 0", "groups in groups"}
"""Those of DAMAGED that are no message of any type."""


@pytest.mark.timeout(240)
async def test_damaged_messages_are_refused(tmp_path: Path) -> None:
    wrong = []
    async with public_gateway(tmp_path) as gateway, watched(gateway.good) as failures:
        for method in METHODS.values():
            for label, data in DAMAGED.items():
                error = await ask(gateway.hostile, method, data)
                code = grpc.StatusCode.OK if error is None else error.code()
                must_fail = label in REFUSED and method.input_type.fields
                if code in DEFECTS or (must_fail and code is not grpc.StatusCode.INVALID_ARGUMENT):
                    wrong.append(f"{method.name}: {label}: {code.name}")
    assert not wrong
    assert not failures
