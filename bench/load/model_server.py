"""A server that speaks the OpenAI protocol and takes little processor time.

Every completion is the same text. Where none is given, the first request that asks for JSON is read and
answered with all verdicts PASS, or with the smallest JSON that fits its schema. The bodies of other requests
are skipped. GET returns the list of models, or the body that was read. A server that reads what it is asked,
and fails on demand, is ``tests.support.openai_server``.

    python -m bench.load.model_server LATENCY_SECONDS TEXT
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import AbstractContextManager
from typing import Any, cast

import uvloop

from bench.load.serving import serving
from dramaturg.api.generation.v1.generation_service_pb2 import GenerateRequest, Message
from dramaturg.testing.generation import smallest_instance
from tests.support.judges import all_pass

_MODELS = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


def model_server(latency: float, text: str = "") -> AbstractContextManager[str]:
    """Runs the server in a process of its own; yields its address.

    Args:
        latency: The seconds after which a request is answered.
        text: What every completion says. Empty: what the first request asks for.
    """
    return serving("bench.load.model_server", str(latency), text)


class _Model:
    """What the model answers.

    Args:
        text: The text of every completion. Empty: what the first request asks for.

    Attributes:
        answer: The response to every completion.
        asked: The body of the first request that asked for JSON.
    """

    def __init__(self, text: str) -> None:
        self.answer = _response(_completion(text or "An answer."))
        self.asked = b""
        self._fixed = bool(text)

    def read(self, body: bytes) -> None:
        """Reads a request, unless the answer is known."""
        if self._fixed or self.asked:
            return
        request = json.loads(body)
        form = request.get("response_format", {}).get("json_schema")
        if form is not None:
            self.answer = _response(_completion(_answer(request, form["schema"])))
            self.asked = body


class _Connection(asyncio.Protocol):
    """A connection, on which a client sends its next request once the last one was answered."""

    def __init__(self, latency: float, model: _Model) -> None:
        self._latency = latency
        self._model = model
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(_HEAD_END)
        length = _LENGTH.search(head)
        if not end or len(body) < int(length[1] if length else 0):
            return
        self._received = b""
        if head.startswith(b"GET"):
            models = head.partition(b" HTTP")[0].endswith(b"/models")
            self._transport.write(_response(_MODELS if models else self._model.asked))
            return
        self._model.read(body)
        asyncio.get_running_loop().call_later(self._latency, self._transport.write, self._model.answer)


def _answer(request: dict[str, Any], schema: dict[str, Any]) -> str:
    try:
        asked = GenerateRequest(messages=[Message(text=request["messages"][-1]["content"])])
        asked.json_format.schema = json.dumps(schema)
        return all_pass(asked).text
    except (KeyError, ValueError):  # not the schema of a judge of scripts
        return json.dumps(smallest_instance(schema))


def _completion(text: str) -> bytes:
    completion = {
        "id": "completion",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1500, "completion_tokens": 500, "total_tokens": 2000},
    }
    return json.dumps(completion).encode()


def _response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + _HEAD_END + body


async def _serve(latency: float, text: str) -> None:
    loop, model = asyncio.get_running_loop(), _Model(text)
    server = await loop.create_server(lambda: _Connection(latency, model), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(float(sys.argv[1]), sys.argv[2]))
