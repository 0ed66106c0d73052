"""The server cases of Connect's conformance suite, for the protocols and codecs that the gateway serves.

They stand in for the suite's own runner, a program in Go. By its names: basic, errors, duplicate metadata,
deadline propagation, timeouts, server message size and unexpected requests. A case is called with every
protocol, codec and compression, and must give what the suite expects.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import grpc
import pytest

from dramaturg.service.context import DEADLINE_METADATA
from dramaturg.service.contract import Contract
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import in_thread
from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from tests.support.http_api import END, PROTOCOLS, TRAILERS, Outcome, Request, by_grpc, envelope, opened

_ECHO: Any = grpc.protos_and_services("tests/gateway/http/echo.proto")
pb, services = _ECHO
SERVICE = "/dramaturg.tests.echo.EchoService/"
STREAMS = {"One": (False, False), "Responses": (False, True), "Requests": (True, False), "Both": (True, True)}
LIMIT = 64 * 1024
SENT = (("x-test", "Value1"), ("x-test", "Value2"))
DATA = "test response"


class Echo:
    async def One(self, request: Any, context: Any) -> Any:
        return (await _answers([request], context))[0]

    async def Responses(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for response in _stream([request], context):
            yield response

    async def Requests(self, requests: Any, context: Any) -> Any:
        return (await _answers([one async for one in requests], context))[0]

    async def Both(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        async for response in _stream([one async for one in requests], context):
            yield response


async def _answers(requests: Sequence[Any], context: Any) -> Sequence[Any]:
    responses = [one async for one in _stream(requests, context)]
    return responses or [pb.EchoResponse()]


async def _stream(requests: Sequence[Any], context: Any) -> AsyncIterator[Any]:
    answer = requests[0].answer if requests else pb.Answer()
    if answer.waits:
        await asyncio.Event().wait()
    trailers = tuple((one.name, one.value) for one in answer.trailers)
    context.set_trailing_metadata(trailers)
    for number, data in enumerate(answer.data):
        response = pb.EchoResponse(data=data)
        if number == 0 and not answer.brief:
            response.requests.extend(requests)
            response.remaining_ms = round(1000 * (context.time_remaining() or 0))
            for key, value in context.invocation_metadata():
                if key == "x-test":
                    response.metadata.add(name=key, value=value)
        yield response
    if answer.code:
        (code,) = (one for one in grpc.StatusCode if one.value[0] == answer.code)
        await context.abort(code, answer.message, trailers)


@dataclass(frozen=True)
class Served:
    target: str
    url: str

    async def each(self, request: Request) -> Iterator[tuple[str, Outcome]]:
        """The outcome with each protocol and codec, without and with compression."""
        asked = [(name, call, packed) for name, call in PROTOCOLS.items() for packed in (False, True)]
        asked.append(("grpc", by_grpc, False))  # which is served without compression
        outcomes = await asyncio.gather(
            *(call(self.target, self.url, replace(request, compressed=packed)) for _, call, packed in asked)
        )
        return iter(
            (f"{name}{', gzip' if packed else ''}", outcome)
            for (name, _, packed), outcome in zip(asked, outcomes, strict=True)
        )


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    async def serve() -> AsyncIterator[Served]:
        contract = Contract.make(
            pb.DESCRIPTOR.services_by_name["EchoService"],
            services.add_EchoServiceServicer_to_server,
            type("Servicer", (Echo, services.EchoServiceServicer), {})(),
            name="echo",
            version="1.0.0",
            description="Answers as it is told.",
        )
        front = HttpServer(HttpSettings(), 0)
        async with Server(
            [contract], ServerSettings.loopback(max_message_bytes=LIMIT), fronts=[front]
        ) as server:
            yield Served(server.target, front.url)

    with in_thread(asynccontextmanager(serve)()) as started:
        yield started


def call(method: str, count: int = 1, timeout: float | None = None, **answer: Any) -> Request:
    """A call with a number of requests, the first of which says what is answered."""
    trailers = [pb.Pair(name="x-custom-trailer", value=value) for value in answer.pop("trailers", ())]
    requests = [pb.EchoRequest(data=DATA) for _ in range(count)]
    if requests:
        requests[0].answer.CopyFrom(pb.Answer(trailers=trailers, **answer))
    return Request(SERVICE + method, requests, SENT, timeout)


def texts(outcome: Outcome) -> Sequence[str]:
    messages: Any = outcome.messages
    return [one.data for one in messages]


RESPONSES = {method: (2 if several else 1) for method, (_, several) in STREAMS.items()}
METHODS = pytest.mark.parametrize("method", STREAMS)


@METHODS
@pytest.mark.parametrize("values", [("foo",), ("foo", "bar", "baz")])
async def test_metadata_and_messages_arrive(served: Served, method: str, values: Sequence[str]) -> None:
    several, _ = STREAMS[method]
    request = call(method, 1 + several, 30.0, trailers=values, data=[DATA] * RESPONSES[method])
    for name, outcome in await served.each(request):
        assert outcome.code == "OK", (name, outcome)
        assert texts(outcome) == [DATA] * RESPONSES[method], name
        first: Any = outcome.messages[0]
        assert list(first.requests) == list(request.messages), name
        assert ", ".join(one.value for one in first.metadata) == "Value1, Value2", name
        assert 0 < first.remaining_ms < 31_000, name
        assert outcome.trailing["x-custom-trailer"] == ", ".join(values), name


@pytest.mark.parametrize("method", ["Requests", "Both"])
async def test_a_stream_may_have_no_request(served: Served, method: str) -> None:
    for name, outcome in await served.each(call(method, 0)):
        assert outcome.code == "OK", (name, outcome)
        assert len(outcome.messages) == (method == "Requests"), name


@pytest.mark.parametrize("method", ["Responses", "Both"])
async def test_a_stream_may_have_no_response(served: Served, method: str) -> None:
    for name, outcome in await served.each(call(method, trailers=["bing"])):
        assert (outcome.code, outcome.messages) == ("OK", []), (name, outcome)
        assert outcome.trailing["x-custom-trailer"] == "bing", name


@pytest.mark.parametrize("method", ["One", "Responses"])
@pytest.mark.parametrize("code", [one for one in grpc.StatusCode if one is not grpc.StatusCode.OK])
async def test_every_code_and_its_message_arrive(served: Served, method: str, code: grpc.StatusCode) -> None:
    message = "\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\n"
    request = call(method, code=code.value[0], message=message, trailers=["bing", "quux"])
    for name, outcome in await served.each(request):
        assert (outcome.code, outcome.message) == (code.name, message), (name, outcome)
        assert outcome.trailing["x-custom-trailer"] == "bing, quux", name


@METHODS
@pytest.mark.parametrize("answer", [{}, {"code": 13, "message": "it failed"}])
async def test_the_metadata_of_the_server_arrives(
    served: Served, method: str, answer: Mapping[str, Any]
) -> None:
    # grpc.aio gives a call whose status it reads first no initial metadata, so a single call proves nothing.
    missing = {name for name, _ in await served.each(call(method, **answer))} - {"grpc"}
    for _ in range(20):
        outcomes = await served.each(call(method, **answer))
        missing -= {name for name, outcome in outcomes if DEADLINE_METADATA in outcome.initial}
        if not missing:
            return
    raise AssertionError(f"no call had the server's metadata with {', '.join(sorted(missing))}")


@pytest.mark.parametrize("method", ["Responses", "Both"])
async def test_an_error_may_follow_responses(served: Served, method: str) -> None:
    request = call(method, 1, data=[DATA, DATA], code=13, message="it failed", trailers=["bing", "quux"])
    for name, outcome in await served.each(request):
        assert texts(outcome) == [DATA, DATA], name
        assert (outcome.code, outcome.message) == ("INTERNAL", "it failed"), name
        assert outcome.trailing["x-custom-trailer"] == "bing, quux", name


@METHODS
async def test_a_time_limit_ends_a_call(served: Served, method: str) -> None:
    for name, outcome in await served.each(call(method, timeout=0.2, waits=True)):
        assert (outcome.code, outcome.messages) == ("DEADLINE_EXCEEDED", []), name


async def test_a_method_that_is_not_implemented(served: Served) -> None:
    for name, outcome in await served.each(call("Absent")):
        assert outcome.code == "UNIMPLEMENTED", name


@pytest.mark.parametrize("excess", [0, 10])
@pytest.mark.parametrize(
    ("method", "position"),
    [(method, at) for method, (several, _) in STREAMS.items() for at in range(1 + several)],
)
async def test_a_message_has_at_most_the_limit(
    served: Served, method: str, excess: int, position: int
) -> None:
    several, _ = STREAMS[method]
    request = call(method, 1 + several, data=[DATA], brief=True)
    large: Any = request.messages[position]
    large.data = ""
    large.data = "x" * (LIMIT + excess - large.ByteSize() - 4)
    assert large.ByteSize() == LIMIT + excess
    for name, outcome in await served.each(request):
        if "json" in name:
            continue  # the text counts
        assert outcome.code == ("RESOURCE_EXHAUSTED" if excess else "OK"), (name, outcome)


@dataclass(frozen=True)
class Unexpected:
    """A request that no client makes."""

    method: str
    content_type: str
    body: bytes
    code: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    verb: str = "POST"


EMPTY = envelope(b"")
STREAM, WEB = "application/connect+proto", "application/grpc-web+proto"
UNEXPECTED: Mapping[str, Unexpected] = {
    "connect, content type": Unexpected("One", "image/jpeg", b"12345678", "unknown", 415),
    "connect, codec": Unexpected("One", "application/foo", b"", "unknown", 415),
    "connect, verb": Unexpected("One", "application/proto", b"", "unknown", 405, verb="DELETE"),
    "connect, path": Unexpected("Nothing", "application/proto", b"", "unimplemented", 404),
    "connect, compression": Unexpected(
        "One", "application/proto", b"", "unimplemented", 501, (("Content-Encoding", "foo"),)
    ),
    "connect, no request": Unexpected("Responses", STREAM, b"", "unimplemented"),
    "connect, two requests": Unexpected("Responses", STREAM, EMPTY * 2, "unimplemented"),
    "connect, compressed without a compression": Unexpected(
        "Responses", STREAM, envelope(gzip.compress(b""), 1), "internal"
    ),
    "grpc-web, verb": Unexpected("One", WEB, EMPTY, "unknown", 405, verb="DELETE"),
    "grpc-web, path": Unexpected("Nothing", WEB, EMPTY, "12"),
    "grpc-web, compression": Unexpected("One", WEB, EMPTY, "12", headers=(("Grpc-Encoding", "foo"),)),
    "grpc-web, compressed without a compression": Unexpected(
        "One", WEB, envelope(gzip.compress(b""), 1), "13"
    ),
    **{
        f"grpc-web, {method}, {len(body)} bytes": Unexpected(method, WEB, body, "12")
        for method in ("One", "Responses")
        for body in (b"", EMPTY * 2)
    },
}


@pytest.mark.parametrize("name", UNEXPECTED)
async def test_what_no_client_sends_is_refused(served: Served, name: str) -> None:
    case = UNEXPECTED[name]
    headers = {"Content-Type": case.content_type, **dict(case.headers)}
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            case.verb, served.url + SERVICE + case.method, data=case.body, headers=headers
        ) as response,
    ):
        body = await response.read()
    assert response.status == case.status, body
    if case.content_type == WEB and case.status == 200:
        flags, last = opened(body)[-1]
        assert flags == TRAILERS
        code = dict(line.split(": ", 1) for line in last.decode().splitlines())["grpc-status"]
    elif case.content_type == STREAM:
        flags, last = opened(body)[-1]
        assert flags == END
        code = json.loads(last)["error"]["code"]
    else:
        code = json.loads(body)["code"]
    assert code == case.code
