"""One request of a visitor, and the calls that it makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl

import grpc
from aiohttp import BodyPartReader, web
from google.protobuf.timestamp_pb2 import Timestamp
from jinja2 import Environment
from markupsafe import escape

from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.api.evaluation.v1.label_service_pb2_grpc import LabelServiceStub
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.report.page import environment, stylesheet
from dramaturg.run_client import answer, stream
from dramaturg.service.auth.caller import Caller
from dramaturg.service.auth.settings import EVALUATE, RUNS_READ, RUNS_WRITE, permissions_of
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import TenantThreads

_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """A template as text. Texts in ``values`` are shown as text."""
    return _environment().get_template(template).render(version=version("dramaturg"), **values)


@cache
def style() -> str:
    """The style sheet: that of the report, and the console's own."""
    return stylesheet() + (_TEMPLATES / "console.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    return (_TEMPLATES / "console.js").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    made = environment(_TEMPLATES)
    made.filters["time"] = _time
    made.filters["minute"] = minute
    # What a visitor typed returns to the field unchanged.
    made.filters["typed"] = escape
    return made


def _time(moment: Timestamp) -> str:
    """A time in UTC; empty where it is absent."""
    if not moment.ToNanoseconds():
        return ""
    return moment.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def minute(moment: Timestamp) -> str:
    """A time in UTC to the minute, under a heading that names UTC."""
    return _time(moment)[:16]


CALL_SECONDS = 60.0
"""The time limit of the calls of a page."""
MAX_FORM_BYTES = 1 << 20
"""The most bytes of a form."""
MAX_FIELDS = 100
"""The most fields of a form."""
_FORM = "application/x-www-form-urlencoded"
_UPLOAD = "multipart/form-data"
_FORM_SECONDS, _UPLOAD_SECONDS = 60.0, 300.0
_PIECE_BYTES = 1 << 16
_SMALL_BYTES = 32 * 1024
"""Larger forms are read in a thread: the escapes of a megabyte take a tenth of a second."""

_threads = TenantThreads(2, per_tenant=1)

REPORT_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "sandbox allow-scripts allow-downloads; connect-src 'none'; "
    "form-action 'none'; frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of reports: their own policy allows the page's script and style alone; the sandbox keeps them apart."""

Response = TypeVar("Response")
Parameters = ParamSpec("Parameters")


class Form(dict[str, str]):
    """The fields of a posted form; the last value of each.

    Attributes:
        file: The name and the content of the uploaded file. None: there is none.
    """

    def __init__(
        self,
        fields: Mapping[str, str],
        lists: Mapping[str, Sequence[str]] | None = None,
        file: tuple[str, bytes] | None = None,
    ) -> None:
        super().__init__(fields)
        self._lists = lists or {}
        self.file = file

    def all(self, name: str) -> Sequence[str]:
        """All values of a field, in order."""
        return self._lists.get(name, ())


class Calls:
    """Calls the gateway with the credentials of a visitor. Every method raises ServiceError.

    Args:
        channel: Connected to the gRPC server of this process.
        metadata: The credentials and the address of the visitor.
        services: The full names of the services that the gateway serves.
    """

    def __init__(
        self, channel: grpc.aio.Channel, metadata: Sequence[tuple[str, str]], services: frozenset[str]
    ) -> None:
        self.services = services
        self.runs = RunServiceStub(channel)
        self.labels = LabelServiceStub(channel)
        self.judges = JudgeDirectoryServiceStub(channel)
        self.evaluations = EvaluationServiceStub(channel)
        self._metadata = tuple(metadata)

    async def __call__(self, method: Callable[..., Awaitable[Response]], request: Any) -> Response:
        return await answer(method(request, metadata=self._metadata, timeout=CALL_SECONDS))

    def stream(self, method: Callable[..., Any], request: Any) -> AsyncGenerator[Any]:
        """The responses of a streaming call, which begins with the first one asked for. Close it."""
        return stream(partial(method, metadata=self._metadata), request, None)


@dataclass(frozen=True)
class Visit:
    """A request to a page."""

    request: web.BaseRequest
    calls: Calls
    caller: Caller
    authenticates: bool
    """Whether the gateway authenticates callers."""
    parameters: Mapping[str, str]
    """The parts of the path that the route names."""
    target: str = ""
    """The address of the gateway for the command line."""

    def may(self, permission: str) -> bool:
        return not self.authenticates or permission in permissions_of(self.caller.roles)

    def serves(self, service: str) -> bool:
        """Whether the gateway serves a service of the package evaluation."""
        return f"dramaturg.api.evaluation.v1.{service}" in self.calls.services

    async def form(self, limit: int = MAX_FORM_BYTES, *, upload: bool = False) -> Form:
        """The fields of a posted form.

        Args:
            limit: The most bytes.
            upload: Whether it has a file.

        Raises:
            HTTPBadRequest: The body is malformed.
            HTTPUnsupportedMediaType: The body is no such form.
            HTTPRequestEntityTooLarge: It is too large, or has too many fields.
            HTTPRequestTimeout: It does not arrive in time.
        """
        if self.request.content_type != (_UPLOAD if upload else _FORM):
            raise web.HTTPUnsupportedMediaType
        try:
            async with asyncio.timeout(_UPLOAD_SECONDS if upload else _FORM_SECONDS):
                return await (self._read_upload(limit) if upload else self._read_form(limit))
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    async def in_thread(
        self, read: Callable[Parameters, Response], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Response:
        """Calls a function that takes long in a thread; those of a tenant one after the other."""
        return await _threads(self.caller.tenant, partial(read, *args, **kwargs))

    async def _read_form(self, limit: int) -> Form:
        data = bytearray()
        while part := await self.request.content.readany():
            data += part
            if len(data) > limit:
                raise web.HTTPRequestEntityTooLarge(limit, len(data))
        if data.count(b"&") >= MAX_FIELDS:
            raise web.HTTPRequestEntityTooLarge(limit, len(data))
        if len(data) <= _SMALL_BYTES:
            return _fields(bytes(data))
        return await self.in_thread(_fields, bytes(data))

    async def _read_upload(self, limit: int) -> Form:
        pairs: list[tuple[str, str]] = []
        file, size = None, 0
        try:
            reader = await self.request.multipart()
            while (part := await reader.next()) is not None:
                if not isinstance(part, BodyPartReader) or len(pairs) >= MAX_FIELDS:
                    raise web.HTTPRequestEntityTooLarge(limit, size)
                data = bytearray()
                while piece := await part.read_chunk(_PIECE_BYTES):
                    data += piece
                    size += len(piece)
                    if size > limit:
                        raise web.HTTPRequestEntityTooLarge(limit, size)
                if part.filename:
                    file = (part.filename, bytes(data))
                elif part.name and part.filename is None:
                    pairs.append((part.name, data.decode(errors="replace")))
        except ValueError:
            raise web.HTTPBadRequest from None
        return _form(pairs, file)

    def page(self, template: str, *, status: int = 200, **values: Any) -> web.Response:
        """A page with the console's navigation."""
        links = [
            ("Runs", "/console/", self.serves("RunService") and self.may(RUNS_READ)),
            ("Labels", "/console/labels", self.serves("LabelService") and self.may(RUNS_READ)),
            ("Judges", "/console/judges", True),
            ("Evaluate", "/console/evaluate", self.may(EVALUATE)),
        ]
        text = render(
            template,
            links=[(name, address) for name, address, shown in links if shown],
            path=self.request.path,
            caller=self.caller,
            authenticates=self.authenticates,
            target=self.target,
            may_write=self.may(RUNS_WRITE),
            may_evaluate=self.may(EVALUATE),
            **values,
        )
        return web.Response(text=text, status=status, content_type="text/html")

    def report(self, text: str) -> web.Response:
        """A page of the report, which is kept apart from the console (``REPORT_HEADERS``)."""
        return web.Response(text=text, content_type="text/html", headers=REPORT_HEADERS)

    def redirect(self, address: str) -> web.Response:
        return web.Response(status=303, headers={"Location": address})


def problems_of(error: ServiceError) -> list[str]:
    """The violations of an error with their fields, else its message."""
    return [f"{field}: {text}" if field else text for field, text in error.violations] or [error.message]


def _fields(data: bytes) -> Form:
    return _form(parse_qsl(data.decode(errors="replace"), keep_blank_values=True))


def _form(pairs: Sequence[tuple[str, str]], file: tuple[str, bytes] | None = None) -> Form:
    # Browsers end the lines of a text with CRLF.
    clean = [(name, value.replace("\r\n", "\n")) for name, value in pairs]
    lists: dict[str, list[str]] = {}
    for name, value in clean:
        lists.setdefault(name, []).append(value)
    return Form(dict(clean), lists, file)
