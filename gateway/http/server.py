"""The HTTP server of the gateway's API."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from aiohttp import web
from google.protobuf.descriptor import MethodDescriptor

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.identity.v1 import identity_service_pb2
from dramaturg.service import logs
from dramaturg.service.auth import audit
from dramaturg.service.auth.caller import ANONYMOUS, AUTHORIZATION_METADATA
from dramaturg.service.context import INFRASTRUCTURE, REQUEST_ID_METADATA, Metadata, request_id_of
from dramaturg.service.contract import Backend
from dramaturg.service.errors import ServiceError, invalid, overloaded, too_many_bytes
from dramaturg.service.interceptors.limits import ResponseTurns
from gateway.http import connect, evaluate, grpc_web
from gateway.http.bodies import ENCODINGS, BinaryCodec, Body, Codec, JsonCodec, UnreadableMessageError
from gateway.http.connections import ConnectionServer, refusals, server_context
from gateway.http.forwarding import Exchange, from_service_error, too_late
from gateway.http.headers import CONNECT_TIMEOUT, GRPC_TIMEOUT, peer_address, timeout_of, to_metadata
from gateway.http.settings import ANY_ORIGIN, HttpSettings

if TYPE_CHECKING:
    from gateway.console.console import Console

logger = logging.getLogger(__name__)

DEFAULT_PORT = 50080
"""The port with ``dramaturg up``."""
_KEEPALIVE_SECONDS = 75.0
"""The time for which a connection without a request is kept."""
_LINGERING_SECONDS = 2.0
"""The time in which the rest of the body of a refused request is read, so that its client reads the
answer."""
_ARRIVAL_SECONDS = 0.2
"""The time in which the request of a connection that was just accepted arrives."""
_PREFLIGHT_SECONDS = "7200"
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
"""The code of a request whose number of messages is not that of its method, as the protocols demand."""


@dataclass(frozen=True)
class _Kind:
    """What a content type says of a request."""

    json: bool = False
    stream: bool = False
    web: bool = False


_KINDS: Mapping[str, _Kind] = {
    "application/json": _Kind(json=True),
    "application/proto": _Kind(),
    "application/connect+json": _Kind(json=True, stream=True),
    "application/connect+proto": _Kind(stream=True),
    "application/grpc-web": _Kind(web=True),
    "application/grpc-web+proto": _Kind(web=True),
    grpc_web.TEXT: _Kind(web=True),
    f"{grpc_web.TEXT}+proto": _Kind(web=True),
}


class HttpServer:
    """Serves the contracts of a gRPC server over the Connect protocol and gRPC-web.

    Args:
        settings: Its settings.
        port: The port; 0 takes a free one.
        or_any_port: Whether it takes a free port where ``port`` is taken.
        announce: Called with the address once it listens.
        console: Whether it serves the web console too.

    Attributes:
        url: The address for a client on this machine, once started.
    """

    def __init__(
        self,
        settings: HttpSettings,
        port: int,
        *,
        or_any_port: bool = False,
        announce: Callable[[str], None] | None = None,
        console: bool = False,
    ) -> None:
        self.url = ""
        self._settings = settings
        self._port = port
        self._or_any_port = or_any_port
        self._announce = announce
        self._with_console = console
        self._console: Console | None = None
        self._turns = ResponseTurns(())
        self._runner: web.ServerRunner | None = None
        self._in_progress = 0

    @property
    def host(self) -> str:
        return self._settings.host

    async def start(self, backend: Backend) -> None:
        settings = self._settings
        context = server_context(settings, backend.settings, authenticates=backend.authenticates)
        self._backend = backend
        if self._with_console:
            # Imported here: the API needs no templates.
            from gateway.console.console import Console

            self._console = Console(
                backend,
                settings.host,
                encrypted=context is not None,
                keys_file=settings.session_keys_file,
            )
        services = [contract.descriptor for contract in backend.contracts]
        services.append(identity_service_pb2.DESCRIPTOR.services_by_name["IdentityService"])
        self._methods: dict[str, MethodDescriptor] = {
            f"/{service.full_name}/{method.name}": method
            for service in services
            for method in service.methods
        }
        if evaluate.EvaluateCodec().path in self._methods:
            self._methods |= {evaluate.PATH: evaluate.UNREAD}
        self._turns = ResponseTurns(
            f"/{contract.full_name}/{method}" for contract in backend.contracts for method in contract.large
        )
        # A caller that goes away cancels its call.
        server = ConnectionServer(
            self._handle,
            handler_cancellation=True,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
            auto_decompress=False,
            access_log=None,
        )
        self._runner = runner = web.ServerRunner(
            server, shutdown_timeout=backend.settings.drain_grace_seconds
        )
        await runner.setup()

        async def listen(port: int) -> None:
            site = web.TCPSite(
                runner, settings.host.strip("[]"), port, ssl_context=context, reuse_address=True
            )
            await site.start()

        try:
            await listen(self._port)
        except OSError as error:
            if not self._or_any_port or error.errno != errno.EADDRINUSE:
                await runner.cleanup()
                raise OSError(
                    f"cannot listen on {settings.host}:{self._port} for HTTP: is the port in use?"
                ) from error
            await listen(0)
        port = runner.addresses[0][1]
        host = "127.0.0.1" if settings.host in {"0.0.0.0", "[::]", "::"} else settings.host  # noqa: S104
        self.url = f"{'http' if context is None else 'https'}://{host}:{port}"
        fields = {"address": f"{settings.host}:{port}", "encrypted": context is not None}
        logger.info("listening for HTTP", extra={"fields": fields})
        if self._announce is not None:
            self._announce(self.url)

    async def close(self) -> None:
        if self._runner is not None:
            await asyncio.gather(*(site.stop() for site in self._runner.sites))
            await asyncio.sleep(_ARRIVAL_SECONDS)

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._console is not None and self._console.serves(request.path):
            return await self._visit(self._console, request)
        origin = request.headers.get("Origin")
        headers = {"Server": "dramaturg", "X-Content-Type-Options": "nosniff"}
        if origin is not None:
            if not self._is_allowed(origin):
                known = self._methods.get(request.path)
                return _Answer(request, _Kind(), "", headers, known).refuse(_foreign(origin))
            headers |= {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
            if request.method == "OPTIONS":
                return web.Response(status=204, headers={**headers, **_preflight(request)})
            headers["Access-Control-Expose-Headers"] = "*"
        if request.path == evaluate.DOCUMENT_PATH and request.method == "GET":
            return web.Response(body=evaluate.document(), headers=headers, content_type="application/json")
        if request.method != "POST":
            return connect.refused(405, "send POST", {**headers, "Allow": "POST"})
        content_type = request.content_type
        method = self._methods.get(request.path)
        kinds = _kinds_of(request.path, method)
        kind = kinds.get(content_type)
        if kind is None:
            return connect.unsupported(kinds, headers)
        if request.path.count("/") != 2:
            return web.Response(status=404, headers=headers)
        answer = _Answer(request, kind, content_type, headers, method)
        if self._in_progress >= self._backend.settings.max_concurrent_calls:
            return answer.refuse(self._overloaded())
        self._in_progress += 1
        try:
            return await self._forward(request, answer, method)
        except ServiceError as error:
            return answer.refuse(error)
        finally:
            self._in_progress -= 1

    async def _visit(self, console: Console, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a request to the web console, within the limit of all requests."""
        if self._in_progress >= self._backend.settings.max_concurrent_calls:
            return web.Response(status=503, text=self._overloaded().message, headers={"Retry-After": "1"})
        self._in_progress += 1
        try:
            return await console.handle(request)
        finally:
            self._in_progress -= 1

    async def _forward(
        self, request: web.BaseRequest, answer: _Answer, method: MethodDescriptor | None
    ) -> web.StreamResponse:
        kind, headers = answer.kind, request.headers
        if not kind.web and headers.get(connect.VERSION, "1") != "1":
            raise invalid(f"metadata.{connect.VERSION.lower()}", "must be 1")
        timeout = timeout_of(headers, GRPC_TIMEOUT if kind.web else CONNECT_TIMEOUT)
        metadata = [*to_metadata(headers.items(), _peer(request)), (REQUEST_ID_METADATA, answer.request_id)]
        started = time.monotonic()
        whole = None
        path = request.path
        if path == evaluate.PATH:
            whole = evaluate.EvaluateCodec(headers.get("Authorization", ""))
            path = whole.path
        codec: Codec = BinaryCodec()
        requests: bytes | AsyncIterator[bytes] = b""
        refusal: UnreadableMessageError | None = None
        if method is None and request.path.startswith(INFRASTRUCTURE):
            raise _unknown_method()
        # The server refuses an unknown method or caller: its body is not read.
        if method is not None and self._has_credentials(request, path, metadata):
            if whole is not None:
                codec = whole
            elif kind.json:
                codec = JsonCodec(method, headers.get("Authorization", ""))
            try:
                messages = self._messages(request, kind, method, codec)
                requests = messages if method.client_streaming else await _single(messages, timeout)
            except UnreadableMessageError as error:
                refusal = error
        if timeout is not None:
            timeout = max(0.0, timeout - (time.monotonic() - started))
        channel = self._backend.channel
        if whole is not None:
            path = whole.path
        turns = self._turns.of(path)
        if turns is None:
            async with Exchange(channel, path, metadata, timeout, requests, refusal) as exchange:
                return await answer.send(exchange, codec)
        limit = self._backend.settings.maximum_deadline_seconds
        response: web.StreamResponse | None = None
        try:
            # The server's own slot is free again when the answer is here, whether or not its caller reads it.
            async with asyncio.timeout(limit if timeout is None else min(timeout, limit)):
                turn = await turns.take(self._tenant(metadata))
                try:
                    async with Exchange(channel, path, metadata, timeout, requests, refusal) as exchange:
                        response = await answer.send(exchange, codec)
                    await response.prepare(request)
                    await response.write_eof()
                    return response
                finally:
                    turn.end()
        except TimeoutError:
            if response is not None and request.transport is not None:
                request.transport.abort()
            raise too_late("the answer was not sent in time") from None

    def _tenant(self, metadata: Metadata) -> str:
        caller = self._backend.find_caller(metadata)
        return "" if caller is None else caller.tenant

    def _has_credentials(self, request: web.BaseRequest, path: str, metadata: Metadata) -> bool:
        """Whether the body of a request may be read. Certificates do not identify callers over HTTP."""
        if not self._backend.authenticates:
            return True
        given = AUTHORIZATION_METADATA in request.headers
        return given and self._backend.authenticate(path, metadata)

    def _messages(
        self, request: web.BaseRequest, kind: _Kind, method: MethodDescriptor, codec: Codec
    ) -> AsyncIterator[bytes]:
        limit = self._backend.settings.max_message_bytes
        if not method.client_streaming and (request.content_length or 0) > 2 * limit:
            raise too_many_bytes(limit, request.content_length)
        caller = request.headers.get("Authorization", "")
        body = Body(request.content, limit, _encoding(request.headers, kind), caller, request.content_length)
        seconds = self._settings.body_timeout_seconds

        async def read() -> AsyncIterator[bytes]:
            if not kind.stream and not kind.web:
                yield await codec.decode(await body.whole(seconds))
                return
            if request.content_type.startswith(grpc_web.TEXT):
                messages = body.text_messages(seconds)
            else:
                messages = body.messages(seconds=None if method.client_streaming else seconds)
            async for message in messages:
                yield await codec.decode(message)

        return read()

    def _is_allowed(self, origin: str) -> bool:
        allowed = self._settings.allowed_origins
        return origin in allowed or ANY_ORIGIN in allowed

    def _overloaded(self) -> ServiceError:
        settings = self._backend.settings
        limit = settings.max_concurrent_calls
        message = f"the server has as many calls as it takes ({limit})"
        return overloaded(message, settings.overload_retry_seconds, limit=limit)


class _Answer:
    """Answers one request in the protocol of its content type."""

    def __init__(
        self,
        request: web.BaseRequest,
        kind: _Kind,
        content_type: str,
        headers: Mapping[str, str],
        method: MethodDescriptor | None,
    ) -> None:
        self._method = request.path if method is not None else ""
        self.kind = kind
        self.request_id = request_id_of(request.headers.getall(REQUEST_ID_METADATA, ()))
        self._request = request
        self._content_type = content_type
        self._headers = headers

    async def send(self, exchange: Exchange, codec: Codec) -> web.StreamResponse:
        """Sends the responses of a call, or its error."""
        if self.kind.web:
            return await grpc_web.answer_call(exchange, self._request, self._content_type, self._headers)
        if self.kind.stream:
            return await connect.answer_stream(
                exchange, codec, self._request, self._content_type, self._headers
            )
        answer = await connect.answer_unary(exchange, codec, self._content_type, self._headers)
        if not self._method:
            answer.set_status(404)
        return answer

    def refuse(self, error: ServiceError) -> web.Response:
        """The answer to a request that is not forwarded; the log has it like that of a call."""
        fields = {
            "method": self._method,
            "code": error.code.name,
            "reason": error.reason_name,
            "request_id": self.request_id,
            "peer": _peer(self._request),
        }
        logs.write(refusals, logging.INFO, "refused", fields)
        if error.code is grpc.StatusCode.PERMISSION_DENIED:
            audit.write(fields, caller=ANONYMOUS)
        failure = from_service_error(error, self.request_id)
        if self.kind.web:
            return grpc_web.call_error(failure, self._content_type, self._headers)
        if self.kind.stream:
            return connect.stream_error(failure, self._content_type, self._headers)
        return connect.unary_error(failure, self._headers)


def _peer(request: web.BaseRequest) -> str:
    return peer_address(request.transport and request.transport.get_extra_info("peername"))


def _kinds_of(path: str, method: MethodDescriptor | None) -> Mapping[str, _Kind]:
    """The content types that a path takes."""
    if path == evaluate.PATH:
        return {"application/json": _KINDS["application/json"]}
    if method is None:
        return _KINDS
    stream = _is_stream(method)
    return {name: kind for name, kind in _KINDS.items() if kind.web or kind.stream == stream}


def _is_stream(method: MethodDescriptor) -> bool:
    return bool(method.client_streaming or method.server_streaming)


def _encoding(headers: Mapping[str, str], kind: _Kind) -> str:
    prefix = "Grpc-" if kind.web else "Connect-Content-" if kind.stream else "Content-"
    name = f"{prefix}Encoding"
    return headers.get(name, ENCODINGS[0]).strip().lower()


def _preflight(request: web.BaseRequest) -> Mapping[str, str]:
    return {
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": request.headers.get("Access-Control-Request-Headers", ""),
        "Access-Control-Max-Age": _PREFLIGHT_SECONDS,
    }


def _foreign(origin: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.PERMISSION_DENIED,
        error_reason_pb2.ERROR_REASON_PERMISSION_DENIED,
        f"pages of {origin[:200]} may not call the API: gateway.http.allowed_origins does not name it",
    )


def _unknown_method() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNIMPLEMENTED,
        error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
        "the server does not implement this method over HTTP",
    )


async def _single(messages: AsyncIterator[bytes], timeout: float | None) -> bytes:
    """The only message of a body.

    Raises:
        ServiceError: There is none or another, or it does not arrive in time.
    """
    found: bytes | None = None
    try:
        async with asyncio.timeout(timeout):
            async for message in messages:
                if found is not None:
                    raise UnreadableMessageError.of("the body has more than one message", _UNIMPLEMENTED)
                found = message
    except TimeoutError:
        raise too_late(f"the body did not arrive within {timeout:g} s") from None
    if found is None:
        raise UnreadableMessageError.of("the body has no message", _UNIMPLEMENTED)
    return found
