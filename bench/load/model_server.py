"""A server that speaks the OpenAI protocol and takes as little as it can of the processors it shares.

Every completion is the same text, after the same time; the request's body is skipped. One that looks at what
it is asked, and misbehaves on demand, is ``tests.support.openai_server``.

    python -m bench.load.model_server LATENCY_SECONDS < TEXT
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import AbstractContextManager
from typing import cast

import uvloop

from bench.load.serving import serving

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


def model_server(latency: float, text: str) -> AbstractContextManager[str]:
    """Runs the server in a process of its own; yields its address.

    Args:
        latency: The seconds after which a request is answered.
        text: What every completion says.
    """
    return serving("bench.load.model_server", str(latency), given=text)


class _Connection(asyncio.Protocol):
    """A connection, on which a client sends its next request once the last one was answered."""

    def __init__(self, latency: float, answer: bytes) -> None:
        self._latency = latency
        self._answer = answer
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(_HEAD_END)
        length = _LENGTH.search(head)
        if end and len(body) >= int(length[1] if length else 0):
            self._received = b""
            asyncio.get_running_loop().call_later(self._latency, self._transport.write, self._answer)


def _response(text: str) -> bytes:
    completion = {
        "id": "completion",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1500, "completion_tokens": 500, "total_tokens": 2000},
    }
    body = json.dumps(completion).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + _HEAD_END + body


async def _serve(latency: float, answer: bytes) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(latency, answer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(float(sys.argv[1]), _response(sys.stdin.read())))
