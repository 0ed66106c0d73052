"""Pods of the sizes and of the console as processes that are configured by their manifests."""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import ssl
import sys
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import yaml

from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.testing import until
from gateway.console.sessions import COOKIE, open_sessions
from tests.k8s.configured import load_judges
from tests.k8s.processes import ADDRESS, bare, caller, started
from tests.k8s.rendered import K8S, combined, folder, render

README = (K8S / "README.md").read_text(encoding="utf-8")
MEBIBYTES = {"Mi": 1, "Gi": 1024}


@pytest.mark.parametrize("size", ["single", "standard", "separate"])
def test_the_table_of_sizes_counts_what_is_rendered(size: str) -> None:
    """What it measures besides, `python -m bench.sizes` prints."""
    (row,) = re.findall(rf"^\| `{size}` \| (.+) \|$", README, re.MULTILINE)
    deployments, pods, objects, _, requested, limits, *_ = row.split(" | ")
    rendering = folder(size.replace("separate", "base"))
    scaled = {one["metadata"]["name"]: one["spec"] for one in rendering.of("HorizontalPodAutoscaler")}
    counts = {pod.name: scaled[pod.name]["minReplicas"] if scaled else 1 for pod in rendering.pods()}

    def memory(kind: str) -> str:
        found = [(pod.container["resources"][kind]["memory"], counts[pod.name]) for pod in rendering.pods()]
        total = sum(int(text[:-2]) * MEBIBYTES[text[-2:]] * count for text, count in found)
        return f"{total} MiB" if total < 1024 else f"{total / 1024:.1f} GiB".replace(".0 ", " ")

    rendered = [str(count) for count in (len(rendering.pods()), sum(counts.values()), len(rendering.objects))]
    assert [deployments, pods, objects] == rendered
    assert (requested, limits) == (memory("requests"), memory("limits"))


@pytest.mark.slow
async def test_one_pod_has_a_judge_for_every_role(tmp_path: Path) -> None:
    rendering = render({"size": "single", "backend": "offline"})
    ledger = {"DRAMATURG_GENERATION_LEDGER_URL": f"sqlite:///{tmp_path}/completions.sqlite3"}
    async with started(rendering, tmp_path, ledger), caller(tmp_path) as client:
        judges = {(judge.role, judge.name) for judge in await client.list_judges()}
    assert {("critic", "offline"), ("graph", "built-in"), ("embedding", "built-in")} <= judges


@pytest.mark.slow
async def test_the_job_for_ci_ends_with_the_exit_code_of_its_evaluation(tmp_path: Path) -> None:
    """The container of the example, beside the pod of the size ``single``; 2 for rows that are none."""
    text = (K8S / "examples/jobs/evaluation.yaml").read_text(encoding="utf-8")
    data, job = yaml.safe_load_all(text)
    for name, content in data["data"].items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    arguments = [
        one.replace("/data", str(tmp_path)).replace("gateway.dramaturg", ADDRESS) for one in container["args"]
    ]
    rules = job["spec"]["podFailurePolicy"]["rules"]
    (codes,) = [one["onExitCodes"]["values"] for one in rules if "onExitCodes" in one]
    ledger = {"DRAMATURG_GENERATION_LEDGER_URL": f"sqlite:///{tmp_path}/completions.sqlite3"}
    environment = bare(
        tmp_path,
        DRAMATURG_CHANNEL_TOKEN_FILE=str(tmp_path / "token"),
        DRAMATURG_CHANNEL_TOKEN_OVER_PLAIN_TEXT="true",
    )
    program = [str(Path(sys.executable).with_name(container["command"][0])), *container["command"][1:]]
    rendering = render({"size": "single", "backend": "offline"})
    async with started(rendering, tmp_path, ledger):
        for rows, code in ((data["data"]["answers.csv"], 0), ("not,rows\n1,2\n", 2)):
            (tmp_path / "answers.csv").write_text(rows, encoding="utf-8")
            job_process = await asyncio.create_subprocess_exec(
                *program, *arguments, cwd=tmp_path, env=environment, stderr=asyncio.subprocess.PIPE
            )
            _, said = await asyncio.wait_for(job_process.communicate(), 120)
            assert job_process.returncode == code, said.decode()
            assert (code in codes) == (code != 0)


@pytest.mark.slow
async def test_a_group_serves_each_judge_at_the_address_that_the_gateway_has(tmp_path: Path) -> None:
    rendering = folder("standard")
    targets = {judge.role: judge.target for judge in load_judges(rendering, tmp_path).judges}
    async with started(rendering, tmp_path, {}, name="agents"):
        for role in ("synthesize", "critic", "execute", "commonsense"):
            host, _, port = targets[role].partition(":")
            assert host == "agents"
            async with open_channel(f"{ADDRESS}:{port}") as channel:
                found = await IdentityServiceStub(channel).GetIdentity(GetIdentityRequest())
            assert role in found.identity.name


OTHER = b"""
[[judges]]
role = "critic"
name = "other"
target = "critic.other-team:50051"

[[judges]]
role = "critic"
name = "next"
target = "critic.next-team:50051"
shadow = { of = "llm" }
"""


@pytest.mark.slow
async def test_judges_come_and_go_without_a_rollout(tmp_path: Path) -> None:
    rendering = folder("base")
    files = {name: text.encode() for name, text in rendering.one("ConfigMap", "judges")["data"].items()}
    variables = {"DRAMATURG_GATEWAY_JUDGES_POLL_SECONDS": "0.1"}
    async with started(rendering, tmp_path, variables) as replica:
        mounted = replica.volumes.mounted["judges"]
        async with caller(tmp_path) as client:

            async def critics() -> set[str]:
                return {judge.name for judge in await client.list_judges("critic")}

            async def become(*names: str) -> None:
                async with asyncio.timeout(60):
                    while await critics() != set(names):  # noqa: ASYNC110 - nothing tells of it
                        await asyncio.sleep(0.1)

            await become("llm")
            mounted.put({**files, "other-critic.toml": OTHER})
            await become("llm", "other", "next")
            mounted.put(files)
            await become("llm")
        assert replica.running
        assert replica.log.read_text().count('"listening"') == 1


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
        assert await asyncio.wait_for(replica.ended(), 60) != 0
        assert re.search(r"gateway\.console needs authentication", replica.log.read_text())
