"""Scores of Langfuse, against an imitation of its public API (langfuse.com/docs/api, version 3)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.examples import EXAMPLES
from tests.support.harness_rows import PROMPT, ROWS, gateway, trace_id, write_rows

pytestmark = pytest.mark.slow

KEYS = "pk-lf-1:sk-lf-1"
SCORE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "traceId": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "name": {"type": "string"},
        "value": {"type": ["number", "string"]},
        "comment": {"type": "string"},
        "metadata": {"type": "object"},
        "dataType": {"enum": ["NUMERIC", "BOOLEAN", "CATEGORICAL"]},
    },
    "required": ["name", "value"],
    "additionalProperties": False,
    "oneOf": [
        {"properties": {"dataType": {"const": "NUMERIC"}, "value": {"type": "number"}}},
        {"properties": {"dataType": {"const": "BOOLEAN"}, "value": {"enum": [0, 1]}}},
        {"properties": {"dataType": {"const": "CATEGORICAL"}, "value": {"type": "string"}}},
    ],
}


@contextmanager
def langfuse() -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Serves ``POST /api/public/scores``; yields its address, and the scores by their ids."""
    kept: dict[str, dict[str, Any]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = 200
            if self.headers["Authorization"] != f"Basic {base64.b64encode(KEYS.encode()).decode()}":
                status = 401
            elif self.path != "/api/public/scores":
                status = 404
            elif not jsonschema.Draft202012Validator(SCORE).is_valid(body):
                status = 400
            else:
                kept[body["id"]] = body
            answer = json.dumps({"id": body.get("id")}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_trace_has_the_scores_of_its_answer(tmp_path: Path) -> None:
    rows = write_rows(tmp_path)
    public, secret = KEYS.split(":")
    with langfuse() as (url, kept), gateway() as (target, _):
        variables = {
            "DRAMATURG_TARGET": target,
            "LANGFUSE_HOST": url,
            "LANGFUSE_PUBLIC_KEY": public,
            "LANGFUSE_SECRET_KEY": secret,
        }
        for _ in range(2):  # a second run replaces the scores of the first
            done = subprocess.run(
                [sys.executable, EXAMPLES / "integrations" / "langfuse_scores.py", rows],
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout == f"{2 * len(ROWS)} scores sent\n"
    assert len(kept) == 2 * len(ROWS)
    by_trace: dict[str, dict[str, Any]] = {}
    for score in kept.values():
        by_trace.setdefault(score["traceId"], {})[score["name"]] = score
    for number, row in enumerate(ROWS):
        scores = by_trace[trace_id(number)]
        for name, value in row.expected().items():
            score = scores[name if value is not None else f"{name} abstains"]
            if value is not None:
                assert score["value"] == value
            assert PROMPT in json.dumps(score["metadata"])
    assert by_trace[trace_id(1)]["polite"]["comment"] == "It is rude.\nIt greets nobody."
    assert by_trace[trace_id(2)]["polite abstains"]["value"] == "UNPARSABLE"
