"""An HTTP server with scripted responses, for everything that providers are known to answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Body = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """A response.

    Attributes:
        payload: JSON, unless it is bytes.
        events: Server-sent events in place of the payload; numbers are pauses in seconds.
        seconds: The time that it takes, in one of the server's slots.
    """

    payload: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Sequence[Any] | None = None
    seconds: float = 0.0


Script = Callable[[Body], Reply]


@dataclass
class ScriptedServer:
    """The server, and what it was asked."""

    script: Script
    base_url: str = ""
    bodies: list[Body] = field(default_factory=list)
    requests: list[web.BaseRequest] = field(default_factory=list)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1000))
    """How many responses are made at once."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers a request for a completion."""
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.requests.append(request)
        reply = self.script(body)
        async with self.slots:
            await asyncio.sleep(reply.seconds)
        if reply.events is not None:
            return await _stream(request, reply)
        content = reply.payload if isinstance(reply.payload, bytes) else json.dumps(reply.payload).encode()
        return web.Response(
            body=content, status=reply.status, headers={"Content-Type": "application/json", **reply.headers}
        )

    async def models(self, request: web.Request) -> web.Response:
        """Lists one model."""
        del request
        return web.json_response({"data": [{"id": "m"}]})


@asynccontextmanager
async def scripted_server(script: Script, slots: int = 1000) -> AsyncIterator[ScriptedServer]:
    """Serves ``script`` on a free port of this machine, with as many responses at once as it has slots."""
    server = ScriptedServer(script, slots=asyncio.Semaphore(slots))
    application = web.Application(client_max_size=64 << 20)
    application.router.add_post("/v1/chat/completions", server.answer)
    application.router.add_get("/v1/models", server.models)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


async def _stream(request: web.Request, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in reply.events or ():
        if isinstance(event, (int, float)):
            await asyncio.sleep(event)
            continue
        data = event if isinstance(event, str) else json.dumps(event)
        await response.write(f"data: {data}\n\n".encode())
    return response


def message(content: Any, *, finish: Any = "stop", usage: Any = None, **members: Any) -> Body:
    """A response with one message."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **members}}
    if finish is not None:
        choice["finish_reason"] = finish
    counted = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14} if usage is None else usage
    return {"id": "1", "object": "chat.completion", "model": "m-1", "choices": [choice], "usage": counted}


def error(text: str, **members: Any) -> Body:
    """An error as OpenAI states it."""
    return {"error": {"message": text, "type": "invalid_request_error", **members}}
