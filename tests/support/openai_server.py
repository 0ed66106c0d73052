"""An HTTP server that speaks the OpenAI protocol, answers what it is told to, and misbehaves on demand.

    async with OpenAIServer(lambda body: '{"outcome": "PASS"}') as server:
        ... server.base_url ...

Every choice of a misbehaviour depends on the seed, the request and how often that request was seen, never on
timing: the same requests meet the same trouble in whatever order they come.

Standalone: ``python -m tests.support.openai_server --port 8080 --rate hang=0.1``.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from yarl import URL

from tests.support.http_servers import serve_http

Body = dict[str, Any]
TROUBLES = (
    "rate_limit",
    "server_error",
    "hang",
    "reset",
    "garbage_body",
    "truncated_body",
    "code_fence",
    "string_booleans",
    "refusal",
    "empty",
    "length",
)
"""The misbehaviours, in the order in which their rates divide the interval from 0 to 1."""
FAILURES = frozenset({"rate_limit", "server_error", "hang", "reset", "garbage_body", "truncated_body"})
"""Those that are no answer; the others are one, of little use."""


@dataclass(frozen=True)
class Answer:
    """What the server answers, where a plain text is not enough."""

    text: str = ""
    refusal: str | None = None
    finish_reason: str = "stop"
    model: str | None = None
    """None: the model asked for."""
    tokens: list[tuple[str, float]] | None = None
    """Tokens and log-probabilities. None: the words of the text, each at -0.1."""
    usage: Mapping[str, Any] | None = field(default_factory=dict)
    """Members over the counted ones. None: no usage is stated."""
    status: int = 200
    """Another status sends ``text`` as the message of an error."""
    error_code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Sender = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers a request by itself, in whatever form."""
Responder = Callable[[Body], "str | Body | Answer | Sender | Awaitable[str | Body | Answer | Sender]"]


@dataclass(frozen=True)
class Recorded:
    """A request as it came, and what was done with it."""

    url: URL
    body: Body
    headers: Mapping[str, str]
    fingerprint: str
    trouble: str
    """One of TROUBLES, "unauthorized", "format_refused", or empty."""


@dataclass
class Misbehaviour:
    """The rate of each kind of trouble, from 0 to 1, together at most 1."""

    rates: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    retry_after: str | None = "0"
    """The Retry-After of rate limits."""
    first_only: bool = False
    """Whether a request that comes again is always served well."""

    def __post_init__(self) -> None:
        unknown = set(self.rates) - set(TROUBLES)
        if unknown or sum(self.rates.values()) > 1 + 1e-9:
            raise ValueError(f"rates must be of {TROUBLES} and add up to at most 1, not {self.rates}")

    @classmethod
    def every_kind(cls, rate: float, **options: Any) -> Self:
        """All kinds at the same rate each."""
        return cls(dict.fromkeys(TROUBLES, rate), **options)

    def choose(self, fingerprint: str, seen: int) -> str:
        """The trouble of a request that was seen ``seen`` times before."""
        if not self.rates or (self.first_only and seen):
            return ""
        digest = hashlib.blake2b(f"{self.seed}/{fingerprint}/{seen}".encode(), digest_size=8).digest()
        draw = int.from_bytes(digest, "big") / 2**64
        for trouble in TROUBLES:
            draw -= self.rates.get(trouble, 0.0)
            if draw < 0:
                return trouble
        return ""


def fingerprint(body: Body) -> str:
    """The SHA-256 of a body's canonical JSON."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class OpenAIServer:
    """The server. An async context manager on a free port of this machine.

    Attributes:
        calls: How often each request came, by fingerprint.
        answered: How often each was answered in full and of use, by fingerprint.
        requests: The requests in order, unless ``record`` is off.
        in_flight: Requests under way; ``peak`` is the most at once.
    """

    def __init__(
        self,
        responder: Responder | None = None,
        misbehaviour: Misbehaviour | None = None,
        *,
        latency: float = 0.0,
        models: tuple[str, ...] = ("test-model",),
        api_key: str = "",
        response_formats: tuple[str, ...] = ("json_schema", "json_object"),
        concurrency: int | None = None,
        record: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Makes a server.

        Args:
            responder: Decides the answer to a request body.
            misbehaviour: What goes wrong, and how often.
            latency: Seconds before every answer.
            models: What /v1/models lists.
            api_key: Other keys are refused with 401. Empty: every key will do.
            response_formats: The types of response_format that are understood; others are refused with 400.
            concurrency: With more requests under way the next is refused with 429. None: no limit.
            record: Whether bodies and headers are kept.
            host: Where to listen.
            port: Where to listen; 0 takes a free one.
        """
        self.responder = responder or default_responder
        self.misbehaviour = misbehaviour or Misbehaviour()
        self.latency = latency
        self.models = models
        self.api_key = api_key
        self.response_formats = response_formats
        self.concurrency = concurrency
        self.calls: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()
        self.requests: list[Recorded] = []
        self.in_flight = 0
        self.peak = 0
        self._record = record
        self._host = host
        self._port = port
        self._serving = AsyncExitStack()

    @property
    def base_url(self) -> str:
        """The address that clients are given."""
        return f"http://{self._host}:{self._port}/v1"

    @property
    def bodies(self) -> list[Body]:
        """The recorded request bodies, in order."""
        return [request.body for request in self.requests]

    async def start(self) -> None:
        """Starts to listen."""
        routes = (
            web.post("/v1/chat/completions", self._complete),
            web.get("/v1/models", self._list_models),
            web.get("/stats", self._stats),
        )
        serving = serve_http(*routes, host=self._host, port=self._port)
        self._port = int((await self._serving.enter_async_context(serving)).rpartition(":")[2])

    async def stop(self) -> None:
        """Stops; requests that hang are cut."""
        await self._serving.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def forget(self) -> None:
        """Forgets all that was counted and recorded."""
        for counter in (self.calls, self.answered, self.troubles):
            counter.clear()
        self.requests.clear()
        self.peak = self.in_flight

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._answer(request)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        mark = fingerprint(body)
        seen = self.calls[mark]
        self.calls[mark] += 1
        trouble = self._refusal(request, body) or self.misbehaviour.choose(mark, seen)
        if trouble:
            self.troubles[trouble] += 1
        if self._record:
            self.requests.append(Recorded(request.url, body, request.headers, mark, trouble))
        if self.latency:
            await asyncio.sleep(self.latency)
        failure = await self._fail(request, trouble)
        if failure is not None:
            return failure
        reply = self.responder(body)
        if inspect.isawaitable(reply):
            reply = await reply
        if callable(reply):
            return await reply(request)
        answer = _spoil(_answer(reply), trouble)
        if answer.status != 200:
            return _error(answer.status, answer.text, answer.error_code, answer.headers)
        payload = json.dumps(_payload(body, answer)).encode()
        if trouble == "truncated_body":
            payload = payload[: len(payload) // 2]
        elif trouble in {"", "code_fence", "string_booleans"} and answer.finish_reason == "stop":
            self.answered[mark] += 1
        return web.Response(body=payload, content_type="application/json", headers=dict(answer.headers))

    def _refusal(self, request: web.Request, body: Body) -> str:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return "unauthorized"
        wanted = (body.get("response_format") or {}).get("type", "text")
        if wanted != "text" and wanted not in self.response_formats:
            return "format_refused"
        if self.concurrency is not None and self.in_flight > self.concurrency:
            return "rate_limit"
        return ""

    async def _fail(self, request: web.Request, trouble: str) -> web.StreamResponse | None:
        match trouble:
            case "unauthorized":
                return _error(401, f"Incorrect API key: {request.headers.get('Authorization')}")
            case "format_refused":
                return _error(400, "response_format: this type is not supported")
            case "rate_limit":
                wait = self.misbehaviour.retry_after
                return _error(429, "slow down", None, {} if wait is None else {"Retry-After": wait})
            case "server_error":
                return _error(500, "something broke")
            case "hang":
                await asyncio.Event().wait()
            case "reset":
                return _reset(request)
            case "garbage_body":
                return web.Response(body=b"<html>\x00 not what you asked for", content_type="text/html")
        return None

    async def _list_models(self, request: web.Request) -> web.Response:
        if self._refusal(request, {}):
            return _error(401, "Incorrect API key")
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})

    async def _stats(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "calls": self.calls,
                "answered": self.answered,
                "troubles": self.troubles,
                "in_flight": self.in_flight,
                "peak": self.peak,
            }
        )


def _answer(reply: Any) -> Answer:
    if isinstance(reply, Answer):
        return reply
    return Answer(reply if isinstance(reply, str) else json.dumps(reply))


def _spoil(answer: Answer, trouble: str) -> Answer:
    def keep(**changes: Any) -> Answer:
        return Answer(**{**vars(answer), **changes})

    match trouble:
        case "code_fence":
            return keep(text=f"```json\n{answer.text}\n```")
        case "string_booleans":
            return keep(text=_string_booleans(answer.text))
        case "refusal":
            return keep(text="", refusal="I cannot help with that.")
        case "empty":
            return keep(text="", tokens=[])
        case "length":
            return keep(text=answer.text[: len(answer.text) // 2], finish_reason="length")
    return answer


def _string_booleans(text: str) -> str:
    def convert(value: Any) -> Any:
        if isinstance(value, bool):
            return str(value)
        if isinstance(value, dict):
            return {name: convert(member) for name, member in value.items()}
        return [convert(item) for item in value] if isinstance(value, list) else value

    try:
        return json.dumps(convert(json.loads(text)))
    except ValueError:
        return text


def _payload(body: Body, answer: Answer) -> Body:
    choice: Body = {
        "index": 0,
        "finish_reason": answer.finish_reason,
        "message": {"role": "assistant", "content": answer.text, "refusal": answer.refusal},
    }
    if body.get("logprobs"):
        choice["logprobs"] = {"content": _logprobs(answer, int(body.get("top_logprobs") or 0))}
    payload: Body = {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": answer.model or body["model"],
        "choices": [choice],
    }
    if answer.usage is not None:
        prompt = sum(len(message["content"]) for message in body["messages"]) // 4 + 1
        completion = len(answer.text) // 4 + 1
        counted = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        payload["usage"] = counted | dict(answer.usage)
    return payload


def _logprobs(answer: Answer, alternatives: int) -> list[Body]:
    tokens = answer.tokens
    if tokens is None:
        tokens = [(word, -0.1) for word in answer.text.split()]
    return [
        {
            "token": token,
            "logprob": logprob,
            "top_logprobs": [
                {"token": token if rank == 0 else f"{token}{rank}", "logprob": logprob - rank}
                for rank in range(alternatives)
            ],
        }
        for token, logprob in tokens
    ]


def _error(
    status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    body = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    return web.json_response(body, status=status, headers=headers)


def _reset(request: web.Request) -> web.Response:
    """Cuts the connection with a TCP reset, as a crashed proxy does."""
    transport = request.transport
    assert transport is not None
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    return web.Response()


def default_responder(body: Body) -> str:
    """The smallest JSON that fits the schema asked for, else the last message said again."""
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        return json.dumps(_example(form["json_schema"]["schema"]))
    return str(body["messages"][-1]["content"])


def _example(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: _example(member) for name, member in schema.get("properties", {}).items()}
    examples: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": True, "array": []}
    return examples.get(kind if isinstance(kind, str) else kind[0])


@contextmanager
def in_thread(server: OpenAIServer) -> Iterator[OpenAIServer]:
    """Serves in a thread with an event loop of its own, for tests and benchmarks that are not async."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        yield server
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def main() -> None:
    """Serves until interrupted; the first line printed is the address."""
    import argparse

    parser = argparse.ArgumentParser(description="An HTTP server that speaks the OpenAI protocol.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rate", action="append", default=[], metavar="TROUBLE=SHARE", help=", ".join(TROUBLES)
    )
    parser.add_argument("--text", help="answer every request with this text")
    options = parser.parse_args()
    rates = {name: float(share) for name, _, share in (rate.partition("=") for rate in options.rate)}
    text = options.text
    server = OpenAIServer(
        None if text is None else lambda _: text,
        Misbehaviour(rates, seed=options.seed),
        latency=options.latency,
        record=False,
        host=options.host,
        port=options.port,
    )

    async def serve() -> None:
        async with server:
            print(server.base_url, flush=True)  # noqa: T201 - for whoever started it
            await asyncio.Event().wait()

    try:
        import uvloop
    except ImportError:
        runner = asyncio.run
    else:
        runner = uvloop.run
    with suppress(KeyboardInterrupt):
        runner(serve())


if __name__ == "__main__":
    main()
