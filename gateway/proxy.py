"""Forwards calls to the services of roles: one address for all contracts.

A call goes to the default service of its role with its deadline and request id; errors are returned
unchanged. A judge in quarantine, or of another version than the expected one, is not called. A call takes a
slot of the judge and has its timeout; a response has the limits of ``gateway.evaluations.judge_answers``, and
a stream that of ``dramaturg.judge.streams.MAX_UNREQUESTED``.
Several roles share the contract JudgeService: the metadata ``dramaturg-role`` names the role of a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeResponse
from dramaturg.judge.streams import MAX_UNREQUESTED
from dramaturg.service.auth.caller import current
from dramaturg.service.auth.settings import EVALUATE
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, downstream, from_rpc_error, invalid, to_error_status
from gateway.evaluations.calls import refusal
from gateway.evaluations.judge_answers import limit_response, mark_version, provenance_of, states_other
from gateway.judges.registry import Judge, Registry
from gateway.quotas.gate import count_items

ROLE_METADATA = "dramaturg-role"
"""The metadata key of the role, for contracts that several roles share."""

_OUR_FAULT = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_Call = Callable[[grpc.aio.Channel], Callable[[Any], Any]]
"""Makes the call of a method on a channel."""
_Choice = Callable[[Any], Judge]
"""Chooses the judge of a call by its context."""


def proxy_contracts(registry: Registry, timeout: float = 300) -> Sequence[Contract]:
    """The contracts of the roles that have a default judge, served by forwarding.

    The set of contracts is fixed; the judge that a call goes to is the default at that time.

    Args:
        registry: The registered judges.
        timeout: The seconds to the first response and from each response to the next, of judges without a
            timeout of their own.
    """
    names = {judge.role.contract: None for judge in registry.all() if judge.default and not judge.entry.panel}
    return [_contract(name, registry, timeout) for name in names]


def _contract(name: str, registry: Registry, timeout: float) -> Contract:
    descriptor = descriptor_pool.Default().FindServiceByName(name)
    return Contract.make(
        descriptor,
        partial(_add, descriptor, timeout),
        registry,
        name="gateway",
        version=version("dramaturg"),
        description=f"Passes calls on to the default judge of {', '.join(_defaults(name, registry))}.",
        # Services accept only services as callers; the gateway admits evaluators.
        permission=EVALUATE,
    )


def _defaults(contract: str, registry: Registry) -> Mapping[str, Judge]:
    """The default judges of the roles of a contract, by role."""
    return {
        judge.role.name: judge
        for judge in registry.all()
        if judge.default and not judge.entry.panel and judge.role.contract == contract
    }


def _add(descriptor: ServiceDescriptor, timeout: float, registry: Registry, server: grpc.aio.Server) -> None:
    handlers = {method.name: _handler(method, registry, timeout) for method in descriptor.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))


def _handler(method: MethodDescriptor, registry: Registry, timeout: float) -> Any:
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    contract = method.containing_service.full_name
    path = f"/{contract}/{method.name}"
    form: dict[str, Callable[..., Any]] = {
        "request_serializer": request.SerializeToString,
        "response_deserializer": response.FromString,
    }
    choose = partial(_choose, contract, registry)
    if method.client_streaming:
        raise NotImplementedError(f"{path}: client streaming is not supported")
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            partial(_pass_stream, choose, timeout, lambda channel: channel.unary_stream(path, **form)),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
    return grpc.unary_unary_rpc_method_handler(
        partial(_pass, choose, timeout, lambda channel: channel.unary_unary(path, **form)),
        request_deserializer=request.FromString,
        response_serializer=response.SerializeToString,
    )


def _choose(contract: str, registry: Registry, context: Any) -> Judge:
    """The judge of the role in the metadata, by default of the only role."""
    judges = _defaults(contract, registry)
    role = dict(context.invocation_metadata() or ()).get(ROLE_METADATA, "")
    if not role and len(judges) == 1:
        return next(iter(judges.values()))
    if role not in judges:
        raise invalid(f"metadata.{ROLE_METADATA}", f"is {role!r}, must be one of {', '.join(judges)}")
    return judges[role]


async def _pass(choose: _Choice, timeout: float, call: _Call, request: Any, context: Any) -> Any:
    judge = choose(context)
    async with _calling(judge):
        async with _timed(judge, timeout):
            response = await call(judge.channel)(request)
        return _limited(response, judge)


async def _pass_stream(
    choose: _Choice, timeout: float, call: _Call, request: Any, context: Any
) -> AsyncGenerator[Any]:
    judge = choose(context)
    async with _calling(judge):
        stream = call(judge.channel)(request)
        try:
            for _ in range(count_items(request) + MAX_UNREQUESTED):
                # The time that the caller takes to read is not the judge's.
                async with _timed(judge, timeout):
                    response = await stream.read()
                if response is grpc.aio.EOF:
                    return
                yield _limited(response, judge)
            raise _failed(
                judge,
                grpc.StatusCode.INTERNAL,
                error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
                f"gave {MAX_UNREQUESTED} answers that were not requested",
            )
        finally:
            stream.cancel()


@asynccontextmanager
async def _calling(judge: Judge) -> AsyncIterator[None]:
    """Holds a slot of a judge that may be called; raises the errors of its service as they are."""
    with await judge.turns.take(current().tenant):
        await _admit(judge)
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise _passed_on(error) from error


@asynccontextmanager
async def _timed(judge: Judge, timeout: float) -> AsyncIterator[None]:
    """Raises DEADLINE_EXCEEDED after the timeout of the judge."""
    seconds = judge.timeout(timeout)
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise _failed(
            judge,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
            f"did not answer within {seconds:g} s",
        ) from None


async def _admit(judge: Judge) -> None:
    """Checks that a judge may be called.

    Raises:
        ServiceError: UNAVAILABLE: it is in quarantine, or does not state its identity where a version is
            expected. FAILED_PRECONDITION: it has another version, and its policy is not to warn.
    """
    failure = await refusal(judge, current().tenant)
    if failure is None:
        return
    wrong = failure.reason == verdict_pb2.ABSTAIN_REASON_CALL_REJECTED
    raise _failed(
        judge,
        grpc.StatusCode.FAILED_PRECONDITION if wrong else grpc.StatusCode.UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
        failure.explanation,
    )


def _limited(response: Any, judge: Judge) -> Any:
    """A response within the limits, which states an unexpected version.

    Raises:
        ServiceError: INTERNAL: the response is too large. In a stream of candidates it is the error of its
            candidate in place of that of the call.
    """
    identity = judge.identity.known
    if (provenance := provenance_of(response)) is not None:
        if states_other(provenance, identity):
            judge.identity.doubt()
        mark_version(provenance, judge.deviation)
    if limit_response(response, judge.role, identity):
        return response
    failure = _failed(
        judge,
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
        "gave an answer that is too large",
    )
    if not isinstance(response, JudgeResponse):
        raise failure
    return JudgeResponse(candidate_id=response.candidate_id, error=to_error_status(failure))


def _failed(
    judge: Judge, code: grpc.StatusCode, reason: error_reason_pb2.ErrorReason.ValueType, explanation: str
) -> ServiceError:
    return ServiceError(
        code,
        reason,
        f"the judge {judge.name!r} of the role {judge.role.name!r} {explanation}",
        metadata={"role": judge.role.name, "judge": judge.name},
    )


def _passed_on(error: grpc.aio.AioRpcError) -> ServiceError:
    """The service's error. A refusal of the gateway's own credentials is mapped, not forwarded."""
    return downstream(error, "the service") if error.code() in _OUR_FAULT else from_rpc_error(error)
