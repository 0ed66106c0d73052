"""The base of all server interceptors: code around a call, whatever its arity.

gRPC has four kinds of handlers, and an interceptor must build each one anew. Here that is done once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

INFRASTRUCTURE = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Methods that no interceptor touches: a full server must answer probes, and watches have no end."""

if TYPE_CHECKING:  # generic in the stubs only
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
else:
    Context, Handler = grpc.aio.ServicerContext, grpc.RpcMethodHandler


class AroundInterceptor(grpc.aio.ServerInterceptor):
    """Runs ``around`` for every call, and ``received`` for every request message."""

    def __init__(self) -> None:
        self._rebuilt: dict[str, tuple[Handler, Handler]] = {}

    def around(self, method: str, context: Context) -> AbstractAsyncContextManager[asyncio.Timeout | None]:
        """What happens before and after the call; it may raise in the caller's stead.

        A timeout that it yields rests while a response of a stream is on its way.
        """
        raise NotImplementedError

    async def received(self, message: Any, context: Context) -> None:
        """Looks at a request message before the handler sees it; it may raise in the caller's stead."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler; the wrapped one is kept, since the next call of the method has the same."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if method.startswith(INFRASTRUCTURE):
            return handler
        if handler is None:
            return self._wrap(_unknown_method(), method)
        known = self._rebuilt.get(method)
        if known is None or known[0] is not handler:
            known = self._rebuilt[method] = handler, self._wrap(handler, method)
        return known[1]

    def _wrap(self, handler: Handler, method: str) -> Handler:
        requests, responses = handler.request_streaming, handler.response_streaming
        arity = f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}"
        around = self._around_stream if responses else self._around_unary
        wrapped: Handler = getattr(grpc, f"{arity}_rpc_method_handler")(
            around(getattr(handler, arity), method, requests=requests),
            handler.request_deserializer,
            handler.response_serializer,
        )
        return wrapped

    def _around_unary(self, behaviour: Any, method: str, *, requests: bool) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: Context) -> Any:
            async with self.around(method, context):
                response = behaviour(await self._received(request, context, requests=requests), context)
                return await response if inspect.isawaitable(response) else response

        return call

    def _around_stream(
        self, behaviour: Any, method: str, *, requests: bool
    ) -> Callable[..., AsyncGenerator[Any]]:
        async def call(request: Any, context: Context) -> AsyncGenerator[Any]:
            async with self.around(method, context) as limit:
                responses = behaviour(await self._received(request, context, requests=requests), context)
                if inspect.isawaitable(responses):  # a coroutine that writes to the context
                    await responses
                    return
                async with aclosing(responses):
                    async for response in responses:
                        if limit is None:
                            yield response
                            continue
                        # A task that is cancelled while gRPC sends for it ends without a status, and a caller
                        # without a deadline of its own would wait for one forever.
                        when = limit.when()
                        limit.reschedule(None)
                        yield response
                        await _resume(limit, when)

        return call

    async def _received(self, request: Any, context: Context, *, requests: bool) -> Any:
        if requests:
            return self._each_received(request, context)
        await self.received(request, context)
        return request

    async def _each_received(self, messages: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async for message in messages:
            await self.received(message, context)
            yield message


async def _resume(limit: asyncio.Timeout, when: float | None) -> None:
    """Sets a rested timeout again, and lets it strike here where it is over."""
    limit.reschedule(when)
    if when is not None and when <= asyncio.get_running_loop().time():
        await asyncio.sleep(0)


def _unknown_method() -> Handler:
    async def refuse(request: object, context: Context) -> object:
        del request, context
        raise NotImplementedError

    return grpc.unary_unary_rpc_method_handler(refuse)
