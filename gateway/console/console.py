"""Routes requests to pages, with the rules that hold for all of them: sign-in, origins, headers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import grpc
from aiohttp import web

from dramaturg.api.common.v1.error_reason_pb2 import (
    ERROR_REASON_PERMISSION_DENIED,
    ERROR_REASON_UNAUTHENTICATED,
    ERROR_REASON_UNSPECIFIED,
    ErrorReason,
)
from dramaturg.service.auth import audit
from dramaturg.service.auth.caller import ANONYMOUS, AUTHORIZATION_METADATA, Caller, is_loopback
from dramaturg.service.context import PEER_METADATA, REQUEST_ID_METADATA, request_id_of
from dramaturg.service.contract import Backend
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import SettingsError
from gateway.console import comparison, evaluation, home, judges, labels, new_run, runs
from gateway.console.sessions import COOKIE, LIFETIME_SECONDS, open_sessions
from gateway.console.visit import Calls, Visit, script, style
from gateway.http.headers import peer_address

ROOT = "/console/"
_SIGN_IN = f"{ROOT}sign-in"
_SIGN_OUT = f"{ROOT}sign-out"
_SIGN_IN_BYTES = 32 * 1024
"""The most bytes of a form of a caller that is not known yet."""

Handler = Callable[[Visit], Awaitable[web.StreamResponse]]

_PAGES = [
    route
    for module in (home, new_run, runs, comparison, judges, evaluation, labels)
    for route in module.ROUTES
]
_ROUTES: Sequence[tuple[str, re.Pattern[str], Handler]] = [
    (method, re.compile(f"{ROOT}{path}"), handler) for method, path, handler in _PAGES
]
_ASSETS: Mapping[str, tuple[Callable[[], str], str]] = {
    f"{ROOT}console.css": (style, "text/css"),
    f"{ROOT}console.js": (script, "text/javascript"),
}

_HEADERS = {
    "Server": "dramaturg",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # "no-referrer" would send forms with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
}

_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


class Console:
    """Serves the pages below ``/console/``.

    Args:
        backend: The gRPC server that pages call.
        host: The address that the HTTP server listens on.
        encrypted: Whether it is reached by TLS.
        keys_file: The keys of sessions that several gateways know (``open_sessions``).

    Raises:
        SettingsError: Callers are not authenticated, and other machines can reach the server; or a key in
            ``keys_file`` is unusable.
    """

    def __init__(
        self, backend: Backend, host: str, *, encrypted: bool, keys_file: Path | None = None
    ) -> None:
        if not backend.authenticates and not is_loopback(f"{host}:0"):
            raise SettingsError(
                f"gateway.console needs authentication where gateway.http.host is {host} "
                "(docs/operate/security.md): without it the console is served on loopback alone"
            )
        self._backend = backend
        self._encrypted = encrypted
        # Browsers take a cookie of this prefix from this host alone, over TLS (RFC 6265bis, section 4.1.3.2).
        self._cookie = f"__Host-{COOKIE}" if encrypted else COOKIE
        self._cookie_path = "/" if encrypted else ROOT
        self._sessions = open_sessions(keys_file)
        self._services = frozenset(contract.full_name for contract in backend.contracts)

    @staticmethod
    def serves(path: str) -> bool:
        """Whether a path is one of the console."""
        return path in {"/", ROOT.rstrip("/")} or path.startswith(ROOT)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._answer(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=error.reason)
        if not response.prepared:
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self._is_own_host(request):
            return web.Response(status=421, text="this console is reached as localhost alone")
        if request.method == "POST" and not self._is_same_origin(request):
            _audit(request, grpc.StatusCode.PERMISSION_DENIED, ERROR_REASON_PERMISSION_DENIED)
            return web.Response(status=403, text="the form is of another page")
        if request.path in _ASSETS:
            text, content_type = _ASSETS[request.path]
            return web.Response(text=text(), content_type=content_type, headers={"Cache-Control": "no-cache"})
        if not request.path.startswith(ROOT):
            return web.Response(status=303, headers={"Location": ROOT})
        visit = self._visit(request)
        if request.path == _SIGN_IN:
            return await self._sign_in(request)
        if request.path == _SIGN_OUT and request.method == "POST":
            return self._sign_out(request)
        if visit is None:
            return self._ask_for_token(request)
        for method, pattern, handler in _ROUTES:
            if request.method == method and (found := pattern.fullmatch(request.path)):
                return await self._serve(handler, replace(visit, parameters=found.groupdict()))
        return visit.page("error.html.j2", status=404, title="Not found", message="There is no such page.")

    async def _serve(self, handler: Handler, visit: Visit) -> web.StreamResponse:
        try:
            return await handler(visit)
        except ServiceError as error:
            if error.code is grpc.StatusCode.UNAUTHENTICATED:
                return self._ask_for_token(visit.request)
            status = _STATUSES.get(error.code, 500)
            messages = [f"{field}: {text}" if field else text for field, text in error.violations]
            return visit.page(
                "error.html.j2",
                status=status,
                title=error.code.name.replace("_", " ").capitalize(),
                message="\n".join(messages) or error.message,
            )

    def _visit(self, request: web.BaseRequest) -> Visit | None:
        """The visit of a caller whose credentials are valid; None: it has to sign in."""
        peer = peer_address(request.transport and request.transport.get_extra_info("peername"))
        metadata = [(PEER_METADATA, peer)]
        caller = ANONYMOUS
        if self._backend.authenticates:
            token = self._sessions.token(self._session(request))
            if token is None:
                return None
            metadata.append((AUTHORIZATION_METADATA, f"Bearer {token}"))
            found = self._backend.find_caller(metadata)
            if found is None:
                return None
            caller = found
        calls = Calls(self._backend.channel, metadata, self._services)
        return Visit(request, calls, caller, self._backend.authenticates, {}, self._target(request))

    def _target(self, request: web.BaseRequest) -> str:
        """The address of the gateway as the visitor may reach it."""
        host, port = _host_of(f"//{request.headers.get('Host', '')}"), self._backend.settings.port
        return f"{host}:{port}" if host and port else "HOST:PORT"

    async def _sign_in(self, request: web.BaseRequest) -> web.StreamResponse:
        anonymous = Visit(request, Calls(self._backend.channel, (), frozenset()), ANONYMOUS, True, {})
        if not self._backend.authenticates:
            return anonymous.redirect(ROOT)
        if request.method != "POST":
            address = _own_address(request.query.get("next"))
            return anonymous.page("sign_in.html.j2", failed=False, next=address)
        form = await anonymous.form(_SIGN_IN_BYTES)
        token, address = form.get("token", "").strip(), _own_address(form.get("next"))
        valid = token.isascii() and token.isprintable()
        caller = self._backend.find_caller([(AUTHORIZATION_METADATA, f"Bearer {token}")]) if valid else None
        if caller is None:
            _audit(request, grpc.StatusCode.UNAUTHENTICATED, ERROR_REASON_UNAUTHENTICATED)
            return anonymous.page("sign_in.html.j2", status=401, failed=True, next=address)
        _audit(request, grpc.StatusCode.OK, caller=caller)
        # Of another visitor in the same browser.
        self._sessions.close(self._session(request))
        response = anonymous.redirect(address)
        response.set_cookie(
            self._cookie,
            self._sessions.open(token, f"{caller.tenant}/{caller.principal}"),
            path=self._cookie_path,
            max_age=int(LIFETIME_SECONDS),
            httponly=True,
            samesite="Strict",
            secure=self._encrypted,
        )
        return response

    def _sign_out(self, request: web.BaseRequest) -> web.Response:
        self._sessions.close(self._session(request))
        response = web.Response(status=303, headers={"Location": _SIGN_IN})
        response.del_cookie(self._cookie, path=self._cookie_path, secure=self._encrypted)
        return response

    def _session(self, request: web.BaseRequest) -> str:
        """The session that the cookie of a request names."""
        return request.cookies.get(self._cookie, "")

    def _ask_for_token(self, request: web.BaseRequest) -> web.Response:
        if request.method != "GET" or "X-Console-Part" in request.headers:
            return web.Response(status=401, text="sign in again")
        address = quote(_own_address(request.path))
        return web.Response(status=303, headers={"Location": f"{_SIGN_IN}?next={address}"})

    def _is_own_host(self, request: web.BaseRequest) -> bool:
        """Whether a page without sign-in is asked for by the name of this machine.

        A foreign name that resolves to loopback would make the console a part of a foreign page's origin.
        """
        if self._backend.authenticates:
            return True
        host = _host_of(f"//{request.headers.get('Host', '')}")
        return is_loopback(f"{host if ':' not in host else f'[{host}]'}:0")

    def _is_same_origin(self, request: web.BaseRequest) -> bool:
        """Whether a form is one of the console: browsers state the origin of the page that sends it.

        A server without TLS may have a proxy with TLS before it, whose pages have the scheme https.
        """
        site, host = request.headers.get("Sec-Fetch-Site", "same-origin"), request.headers.get("Host")
        schemes = ("https",) if self._encrypted else ("https", "http")
        own = [f"{scheme}://{host}" for scheme in schemes if host]
        return site == "same-origin" and request.headers.get("Origin") in own


def _audit(
    request: web.BaseRequest,
    code: grpc.StatusCode,
    reason: ErrorReason.ValueType = ERROR_REASON_UNSPECIFIED,
    caller: Caller = ANONYMOUS,
) -> None:
    """Writes a line of the audit log about a sign-in, or about a form that was refused."""
    call = {
        "method": _own_address(request.path),
        "code": code.name,
        "reason": ErrorReason.Name(reason),
        "request_id": request_id_of(request.headers.getall(REQUEST_ID_METADATA, ())),
        "peer": peer_address(request.transport and request.transport.get_extra_info("peername")),
    }
    audit.write(call, caller=caller)


def _host_of(address: str) -> str:
    """The host in an address; empty where it is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _own_address(address: str | None) -> str:
    """An address within the console, to return to after the sign-in."""
    found = address or ""
    return found if re.fullmatch(rf"{ROOT}[A-Za-z0-9_./-]*", found) and "//" not in found else ROOT
