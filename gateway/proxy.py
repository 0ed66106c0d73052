"""Passes calls on to the services that serve a role, so that one address offers them all.

A call reaches the role's default service as it came, within the deadline and under the request id that it
came with, and its error comes back as it is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from dramaturg.service.auth.permissions import EVALUATE
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, downstream, from_rpc_error
from gateway.judges.registry import Judge

_OUR_FAULT = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


def forwarding(judge: Judge) -> Contract:
    """The contract of a judge's role, served by passing every call on to the judge.

    Args:
        judge: The service that answers.
    """
    descriptor = descriptor_pool.Default().FindServiceByName(judge.role.contract)
    return Contract.make(
        descriptor,
        partial(_add, descriptor),
        judge,
        name="gateway",
        version=version("dramaturg"),
        description=f"Passes calls on to {judge.role.name} {judge.name!r}.",
        # At the judge itself only services may call it; here everybody who may have things judged.
        permission=EVALUATE,
    )


def _add(descriptor: ServiceDescriptor, judge: Judge, server: grpc.aio.Server) -> None:
    handlers = {method.name: _handler(method, judge.channel) for method in descriptor.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))


def _handler(method: MethodDescriptor, channel: grpc.aio.Channel) -> Any:
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    path = f"/{method.containing_service.full_name}/{method.name}"
    form: dict[str, Callable[..., Any]] = {
        "request_serializer": request.SerializeToString,
        "response_deserializer": response.FromString,
    }
    if method.client_streaming:
        raise NotImplementedError(f"{path} takes a stream; no contract with a role does")
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            partial(_pass_stream, channel.unary_stream(path, **form)),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
    return grpc.unary_unary_rpc_method_handler(
        partial(_pass, channel.unary_unary(path, **form)),
        request_deserializer=request.FromString,
        response_serializer=response.SerializeToString,
    )


async def _pass(call: Callable[[Any], Any], request: Any, context: object) -> Any:
    del context
    try:
        return await call(request)
    except grpc.aio.AioRpcError as error:
        raise _passed_on(error) from error


async def _pass_stream(call: Callable[[Any], Any], request: Any, context: object) -> AsyncGenerator[Any]:
    del context
    try:
        async for response in call(request):
            yield response
    except grpc.aio.AioRpcError as error:
        raise _passed_on(error) from error


def _passed_on(error: grpc.aio.AioRpcError) -> ServiceError:
    """The service's own error. That it does not know, or want, the gateway is no fault of the caller."""
    return downstream(error, "the service") if error.code() in _OUR_FAULT else from_rpc_error(error)
