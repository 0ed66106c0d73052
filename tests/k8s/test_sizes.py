"""The pods of the sizes that serve several services, as processes that are configured by their manifests."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
import yaml

from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.service.channel import open_channel
from tests.k8s.configured import load_judges
from tests.k8s.processes import ADDRESS, bare, caller, started
from tests.k8s.rendered import K8S, folder, render

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
