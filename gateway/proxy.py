"""Forwards calls to the services of roles: one address for all contracts.

A call goes to the default service of its role with its deadline and request id; errors are returned
unchanged. A judge in quarantine, or of another version than the expected one, is not called. The usage that a
response claims is limited (``gateway.evaluations.judge_answers``). Several roles share the contract
JudgeService: the metadata ``dramaturg-role`` names the role of a call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.service.auth.permissions import EVALUATE
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, downstream, from_rpc_error, invalid
from gateway.evaluations.calls import refusal
from gateway.evaluations.judge_answers import limit_claims, mark_version, provenance_of
from gateway.judges.registry import Judge, Registry

ROLE_METADATA = "dramaturg-role"
"""The metadata key of the role, for contracts that several roles share."""

_OUR_FAULT = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_Call = Callable[[grpc.aio.Channel], Callable[[Any], Any]]
"""Makes the call of a method on a channel."""
_Choice = Callable[[Any], Judge]
"""Chooses the judge of a call by its context."""


def proxy_contracts(registry: Registry) -> Sequence[Contract]:
    """The contracts of the roles that have a default judge, served by forwarding.

    The set of contracts is fixed; the judge that a call goes to is the default at that time.
    """
    names = {judge.role.contract: None for judge in registry.all() if judge.default and not judge.entry.panel}
    return [_contract(name, registry) for name in names]


def _contract(name: str, registry: Registry) -> Contract:
    descriptor = descriptor_pool.Default().FindServiceByName(name)
    return Contract.make(
        descriptor,
        partial(_add, descriptor),
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


def _add(descriptor: ServiceDescriptor, registry: Registry, server: grpc.aio.Server) -> None:
    handlers = {method.name: _handler(method, registry) for method in descriptor.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))


def _handler(method: MethodDescriptor, registry: Registry) -> Any:
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
            partial(_pass_stream, choose, lambda channel: channel.unary_stream(path, **form)),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
    return grpc.unary_unary_rpc_method_handler(
        partial(_pass, choose, lambda channel: channel.unary_unary(path, **form)),
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


async def _pass(choose: _Choice, call: _Call, request: Any, context: Any) -> Any:
    judge = choose(context)
    await _admit(judge)
    try:
        response = await call(judge.channel)(request)
    except grpc.aio.AioRpcError as error:
        raise _passed_on(error) from error
    _correct(response, judge)
    return response


async def _pass_stream(choose: _Choice, call: _Call, request: Any, context: Any) -> AsyncGenerator[Any]:
    judge = choose(context)
    await _admit(judge)
    try:
        async for response in call(judge.channel)(request):
            _correct(response, judge)
            yield response
    except grpc.aio.AioRpcError as error:
        raise _passed_on(error) from error


async def _admit(judge: Judge) -> None:
    """Checks that a judge may be called.

    Raises:
        ServiceError: UNAVAILABLE: it is in quarantine, or does not state its identity where a version is
            expected. FAILED_PRECONDITION: it has another version, and its policy is not to warn.
    """
    failure = await refusal(judge)
    if failure is None:
        return
    wrong = failure.reason == verdict_pb2.ABSTAIN_REASON_CALL_REJECTED
    raise ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION if wrong else grpc.StatusCode.UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
        f"the judge {judge.name!r} of the role {judge.role.name!r} {failure.explanation}",
        metadata={"role": judge.role.name, "judge": judge.name},
    )


def _correct(response: Any, judge: Judge) -> None:
    """Limits the usage that a response claims, and states an unexpected version."""
    if (provenance := provenance_of(response)) is not None:
        mark_version(provenance, judge.deviation)
    limit_claims(response)


def _passed_on(error: grpc.aio.AioRpcError) -> ServiceError:
    """The service's error. A refusal of the gateway's own credentials is mapped, not forwarded."""
    return downstream(error, "the service") if error.code() in _OUR_FAULT else from_rpc_error(error)
