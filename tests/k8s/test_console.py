"""The component `console`: the gateway as a process that is configured by it."""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import ssl
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from dramaturg.testing import until
from gateway.console.sessions import COOKIE, open_sessions
from tests.k8s.processes import ADDRESS, started
from tests.k8s.rendered import combined

_START_SECONDS = 60.0


@pytest.mark.slow
async def test_visitors_sign_in_over_tls_once_the_pod_is_ready(tmp_path: Path) -> None:
    rendering = combined(("console", "mtls"))
    service = rendering.one("Service", "console")["spec"]
    (port,) = service["ports"]
    url = f"https://{ADDRESS}:{port['port']}"
    host = {"DRAMATURG_GATEWAY_HTTP__HOST": ADDRESS}
    keys = tmp_path / "keys"
    keys.write_text(base64.b64encode(secrets.token_bytes(32)).decode())
    optional = {"console": {"keys": keys.read_text()}}
    async with started(rendering, tmp_path, host, optional=optional) as replica:
        await until(lambda: "listening for HTTP" in replica.log.read_text())
        assert replica.volumes.certificate is not None
        context = ssl.create_default_context(cafile=replica.volumes.certificate.authorities)
        connector = aiohttp.TCPConnector(ssl=context)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as browser:
            ask = partial(browser.request, server_hostname="gateway")
            async with ask("GET", f"{url}/console/") as page:
                assert "token" in await page.text()
                assert "Runs" not in await page.text()
            token = (tmp_path / "token").read_text()
            signing_in = ask("POST", f"{url}/console/sign-in", data={"token": token}, headers={"Origin": url})
            async with signing_in as page:
                assert page.status == 200
            async with ask("GET", f"{url}/console/") as page:
                assert "Runs" in await page.text()
            # Every replica with the Secret knows the session, which ends before the affinity of its address.
            (cookie,) = [one for one in jar if one.key == f"__Host-{COOKIE}"]
            assert open_sessions(keys).token(cookie.value) == token
            affinity = service["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
            assert int(cookie["max-age"]) <= affinity


@pytest.mark.slow
async def test_a_gateway_that_authenticates_nobody_does_not_start_with_the_console(tmp_path: Path) -> None:
    anonymous = {"DRAMATURG_AUTH_ALLOW_ANONYMOUS": "true"}
    without, rendering = "DRAMATURG_AUTH_TOKENS_FILE", combined(("console",))
    async with started(rendering, tmp_path, anonymous, without=without, ready=False) as replica:
        assert await asyncio.wait_for(replica.ended(), _START_SECONDS) != 0
        assert re.search(r"gateway\.console needs authentication", replica.log.read_text())
