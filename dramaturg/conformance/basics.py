"""What answers of several contracts must have: an identity, provenance, possible usage, details of errors."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest, Identity
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.conformance.kit import RequirementError, Subject, require
from dramaturg.judge.protocols import CALLS_MODELS, MAX_CALL_TOKENS
from dramaturg.service.errors import ServiceError, from_rpc_error

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
