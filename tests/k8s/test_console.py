"""The component `console`: the gateway as a process that is configured by it."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from dramaturg.testing import until
from tests.cluster.probes import wait_for
from tests.cluster.replicas import Replica, entrypoint
from tests.cluster.trust import Tokens
from tests.cluster.volumes import issue
from tests.k8s.rendered import Rendering, combined
from tests.support.certificates import Authority

_ADDRESS = f"127.{32 + (os.getpid() >> 8) % 32}.{os.getpid() % 256}.1"
_START_SECONDS = 60.0


@asynccontextmanager
async def started(
    rendering: Rendering, place: Path, variables: Mapping[str, str], without: str = ""
) -> AsyncIterator[tuple[Replica, asyncio.subprocess.Process]]:
    """The gateway of a rendering, with a store of its own and without its judges."""
    pod = next(pod for pod in rendering.services() if pod.name == "gateway")
    secrets = {
        "callers": Tokens(place).callers,
        "store-app": {"uri": f"sqlite:///{place}/runs.sqlite3"},
        "store-ca": {"ca.crt": ""},
    }
    replica = Replica(
        pod, rendering, name="gateway", address=_ADDRESS, folder=place, secrets=secrets, overrides=variables
    )
    if replica.volumes.certificate is not None:
        authority = Authority(place / "authority")
        certificate = issue(authority, pod, rendering.namespace)
        replica.volumes.certificate.put(certificate, [authority.certificate])
    environment = {name: value for name, value in replica.environment.items() if name != without}
    with replica.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *entrypoint(), *pod.container["args"], cwd=place, env=environment, stdout=log, stderr=log
        )
    try:
        yield replica, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
async def test_visitors_sign_in_over_tls_once_the_pod_is_ready(tmp_path: Path) -> None:
    rendering = combined(("console", "mtls"))
    service = rendering.one("Service", "console")["spec"]
    (port,) = service["ports"]
    url = f"https://{_ADDRESS}:{port['port']}"
    host = {"DRAMATURG_GATEWAY_HTTP__HOST": _ADDRESS}
    async with started(rendering, tmp_path, host) as (replica, process):
        probe = replica.pod.container["readinessProbe"]
        alive = await wait_for(probe | {"failureThreshold": 12}, _ADDRESS, lambda: process.returncode is None)
        assert alive, replica.log.read_text()
        await until(lambda: "listening for HTTP" in replica.log.read_text())
        assert replica.volumes.certificate is not None
        context = ssl.create_default_context(cafile=replica.volumes.certificate.authorities)
        connector = aiohttp.TCPConnector(ssl=context)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as browser:
            own = "gateway"
            async with browser.get(f"{url}/console/", server_hostname=own) as page:
                assert "token" in await page.text()
                assert "Runs" not in await page.text()
            token = (tmp_path / "token").read_text()
            signed_in = browser.post(
                f"{url}/console/sign-in", data={"token": token}, headers={"Origin": url}, server_hostname=own
            )
            async with signed_in as page:
                assert page.status == 200
            async with browser.get(f"{url}/console/", server_hostname=own) as page:
                assert "Runs" in await page.text()
            # The session ends before the affinity of the address does.
            (cookie,) = [one for one in jar if one.key == "dramaturg_session"]
            affinity = service["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
            assert int(cookie["max-age"]) <= affinity


@pytest.mark.slow
async def test_a_gateway_that_authenticates_nobody_does_not_start_with_the_console(tmp_path: Path) -> None:
    anonymous = {"DRAMATURG_AUTH_ALLOW_ANONYMOUS": "true"}
    without = "DRAMATURG_AUTH_TOKENS_FILE"
    async with started(combined(("console",)), tmp_path, anonymous, without) as (replica, process):
        async with asyncio.timeout(_START_SECONDS):
            assert await process.wait() != 0
        assert re.search(r"gateway\.console needs authentication", replica.log.read_text())


def test_the_console_is_off_unless_it_is_asked_for() -> None:
    pod = next(pod for pod in combined(()).services() if pod.name == "gateway")
    assert not [name for name in pod.environment() if "CONSOLE" in name or "HTTP" in name]


def test_the_callers_of_the_gateway_reach_the_console_and_others_do_not() -> None:
    rendering = combined(("console",))
    (console,) = rendering.one("NetworkPolicy", "console")["spec"]["ingress"]
    (gateway,) = rendering.one("NetworkPolicy", "gateway")["spec"]["ingress"]
    assert console["from"] == gateway["from"]
    assert console["ports"] == [{"protocol": "TCP", "port": "http"}]
