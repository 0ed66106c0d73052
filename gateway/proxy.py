"""Forwards calls to the services of roles: one address for all contracts.

A call goes to the default service of its role with its deadline and request id; errors are returned
unchanged. Several roles share the contract JudgeService: the metadata ``dramaturg-role`` names the role of a
call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from dramaturg.service.auth.permissions import EVALUATE
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, downstream, from_rpc_error, invalid
from gateway.judges.registry import Judge

ROLE_METADATA = "dramaturg-role"
"""The metadata key of the role, for contracts that several roles share."""

_OUR_FAULT = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_Calls = Mapping[str, Callable[[Any], Any]]


def proxy_contracts(judges: Sequence[Judge]) -> Sequence[Contract]:
    """The contracts of the judges' roles, served by forwarding.

    Args:
        judges: The default judge of each role.
    """
    by_contract: dict[str, list[Judge]] = {}
    for judge in judges:
        by_contract.setdefault(judge.role.contract, []).append(judge)
    return [_contract(contract, served) for contract, served in by_contract.items()]


def _contract(name: str, judges: Sequence[Judge]) -> Contract:
    descriptor = descriptor_pool.Default().FindServiceByName(name)
    served = ", ".join(f"{judge.role.name} {judge.name!r}" for judge in judges)
    return Contract.make(
        descriptor,
        partial(_add, descriptor),
        judges,
        name="gateway",
        version=version("dramaturg"),
        description=f"Passes calls on to {served}.",
        # Services accept only services as callers; the gateway admits evaluators.
        permission=EVALUATE,
    )


def _add(descriptor: ServiceDescriptor, judges: Sequence[Judge], server: grpc.aio.Server) -> None:
    handlers = {method.name: _handler(method, judges) for method in descriptor.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))


def _handler(method: MethodDescriptor, judges: Sequence[Judge]) -> Any:
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    path = f"/{method.containing_service.full_name}/{method.name}"
    form: dict[str, Callable[..., Any]] = {
        "request_serializer": request.SerializeToString,
        "response_deserializer": response.FromString,
    }
    if method.client_streaming:
        raise NotImplementedError(f"{path}: client streaming is not supported")
    if method.server_streaming:
        streams: _Calls = {judge.role.name: judge.channel.unary_stream(path, **form) for judge in judges}
        return grpc.unary_stream_rpc_method_handler(
            partial(_pass_stream, streams),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
    calls: _Calls = {judge.role.name: judge.channel.unary_unary(path, **form) for judge in judges}
    return grpc.unary_unary_rpc_method_handler(
        partial(_pass, calls),
        request_deserializer=request.FromString,
        response_serializer=response.SerializeToString,
    )


def _choose(calls: _Calls, context: Any) -> Callable[[Any], Any]:
    """The call of the role in the metadata, by default of the only role."""
    role = dict(context.invocation_metadata() or ()).get(ROLE_METADATA, "")
    if not role and len(calls) == 1:
        return next(iter(calls.values()))
    if role not in calls:
        raise invalid(f"metadata.{ROLE_METADATA}", f"is {role!r}, must be one of {', '.join(calls)}")
    return calls[role]


async def _pass(calls: _Calls, request: Any, context: Any) -> Any:
    call = _choose(calls, context)
    try:
        return await call(request)
    except grpc.aio.AioRpcError as error:
        raise _passed_on(error) from error


async def _pass_stream(calls: _Calls, request: Any, context: Any) -> AsyncGenerator[Any]:
    call = _choose(calls, context)
    try:
        async for response in call(request):
            yield response
    except grpc.aio.AioRpcError as error:
        raise _passed_on(error) from error


def _passed_on(error: grpc.aio.AioRpcError) -> ServiceError:
    """The service's error. A refusal of the gateway's own credentials is mapped, not forwarded."""
    return downstream(error, "the service") if error.code() in _OUR_FAULT else from_rpc_error(error)
