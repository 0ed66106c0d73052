"""All that happens around a call, in one pass: it is named, admitted, bounded, checked, served and logged.

gRPC has four kinds of handlers, and an interceptor must build each one anew. Here that is done once, for all
that happens around a call: an interceptor for each concern costs more than most handlers do.

The order is that of the code. Whatever is raised passes the error mapping, and the access log sees what came
of it. The caller is recognised first; then the call is admitted, and then its deadline is looked at: all that
before its message costs any time.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from dramaturg.service.auth.guard import Guard
from dramaturg.service.gate import OPEN_GATE, Gate
from dramaturg.service.interceptors import error_mapping, validation
from dramaturg.service.interceptors.access_log import LoggedCall
from dramaturg.service.interceptors.admission import Admission
from dramaturg.service.interceptors.deadline import Deadlines

INFRASTRUCTURE = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Methods that are left alone where everybody may call them: a full server must answer probes, and watches
have no end."""

if TYPE_CHECKING:  # generic in the stubs only
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
else:
    Context, Handler = grpc.aio.ServicerContext, grpc.RpcMethodHandler


@dataclass(frozen=True, slots=True)
class _Method:
    """How one method is called."""

    name: str
    behaviour: Any
    requests: bool
    """Whether requests come in a stream. One that comes alone comes as a pair with its size in bytes."""
    gate: Gate
    """What its calls pass."""


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Does for every call what a server owes it.

    Args:
        guard: Knows who may call.
        admission: Counts the calls.
        deadlines: Bounds them.
        gates: What the calls of a contract pass besides, by the contract's full name.
    """

    def __init__(
        self, guard: Guard, admission: Admission, deadlines: Deadlines, gates: Mapping[str, Gate]
    ) -> None:
        self._guard = guard
        self._admission = admission
        self._deadlines = deadlines
        self._gates = gates
        self._rebuilt: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler; the wrapped one is kept, since the next call of the method has the same."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if method.startswith(INFRASTRUCTURE) and self._guard.is_open(method):
            return handler
        if not self._guard.greet(method, handler_call_details.invocation_metadata or ()):
            return self._wrap(_unread_call(), method)
        if handler is None:
            return self._wrap(_unknown_method(), method)
        known = self._rebuilt.get(method)
        if known is None or known[0] is not handler:
            known = self._rebuilt[method] = handler, self._wrap(handler, method)
        return known[1]

    def _wrap(self, handler: Handler, name: str) -> Handler:
        requests, responses = handler.request_streaming, handler.response_streaming
        arity = f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}"
        gate = self._gates.get(name.strip("/").partition("/")[0], OPEN_GATE)
        method = _Method(name, getattr(handler, arity), requests, gate)
        around: Callable[..., Any] = self._around_stream if responses else self._around_unary
        wrapped: Handler = getattr(grpc, f"{arity}_rpc_method_handler")(
            around(method),
            handler.request_deserializer if requests else _sized(handler.request_deserializer),
            handler.response_serializer,
        )
        return wrapped

    def _around_unary(self, method: _Method) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: Context) -> Any:
            logged = self._logged(request, method, context)
            try:
                try:
                    self._guard.admit(method.name, context, logged.metadata)
                    with self._admission, self._deadlines.limit(logged.seconds):
                        async with method.gate.passing(method.name) as answered:
                            response = method.behaviour(await _checked(request, method, logged), context)
                            answer = await response if inspect.isawaitable(response) else response
                            logged.answered(answer)
                            answered(answer)
                            return answer
                except Exception as raised:
                    await error_mapping.abort(raised, method.name, context)
            except BaseException as raised:
                logged.failed(raised)
                raise
            finally:
                logged.end()

        return call

    def _around_stream(self, method: _Method) -> Callable[..., AsyncGenerator[Any]]:
        async def call(request: Any, context: Context) -> AsyncGenerator[Any]:
            logged = self._logged(request, method, context)
            try:
                try:
                    self._guard.admit(method.name, context, logged.metadata)
                    with self._admission, self._deadlines.limit(logged.seconds) as limit:
                        async with method.gate.passing(method.name) as answered:
                            responses = method.behaviour(await _checked(request, method, logged), context)
                            if inspect.isawaitable(responses):  # a coroutine that writes to the context
                                await responses
                                return
                            async with aclosing(responses):
                                async for response in responses:
                                    answered(response)
                                    limit.rest()
                                    yield response
                                    limit.resume()
                except Exception as raised:
                    await error_mapping.abort(raised, method.name, context)
            except BaseException as raised:
                logged.failed(raised)
                raise
            finally:
                logged.end()

        return call

    def _logged(self, request: Any, method: _Method, context: Context) -> LoggedCall:
        message = None if method.requests else request[0]
        return LoggedCall(method.name, context, message, self._deadlines.seconds(context))


def _sized(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], tuple[Any, int]]:
    """Reads a message together with its size: to ask a message for its size is to write it anew."""
    if parse is None:
        return lambda data: (data, len(data))
    return lambda data: (parse(data), len(data))


async def _checked(request: Any, method: _Method, logged: LoggedCall) -> Any:
    """What the servicer gets."""
    if method.requests:
        return _each_checked(request, logged)
    message, size = request
    await validation.check(message, size)
    return message


async def _each_checked(messages: AsyncIterator[Any], logged: LoggedCall) -> AsyncIterator[Any]:
    async for message in messages:
        logged.received(message)
        await validation.check(message)
        yield message


def _unread_call() -> Handler:
    """Stands for a method whose call the guard will refuse: only handlers of streams do not read at once."""

    async def refuse(requests: object, context: Context) -> object:
        del requests, context
        raise AssertionError("a caller that is not known was admitted")

    return grpc.stream_unary_rpc_method_handler(refuse)


def _unknown_method() -> Handler:
    async def refuse(request: object, context: Context) -> object:
        del request, context
        raise NotImplementedError

    return grpc.unary_unary_rpc_method_handler(refuse)
