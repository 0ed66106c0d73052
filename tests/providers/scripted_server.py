"""A model server with scripted responses, for everything that providers are known to answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.openai_server import Body, OpenAIServer


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

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Answers a request."""
        if self.events is None:
            content = self.payload if isinstance(self.payload, bytes) else json.dumps(self.payload).encode()
            headers = {"Content-Type": "application/json", **self.headers}
            return web.Response(body=content, status=self.status, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in self.events:
            if isinstance(event, (int, float)):
                await asyncio.sleep(event)
                continue
            data = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"data: {data}\n\n".encode())
        return response


Script = Callable[[Body], Reply]


def scripted_server(script: Script, slots: int = 1000) -> OpenAIServer:
    """Serves ``script`` on a free port of this machine, with as many responses at once as it has slots."""
    free = asyncio.Semaphore(slots)

    async def respond(body: Body) -> Reply:
        reply = script(body)
        async with free:
            await asyncio.sleep(reply.seconds)
        return reply

    return OpenAIServer(respond, models=("m",))


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
