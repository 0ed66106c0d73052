"""A judge is added by a key of the ConfigMap ``judges``, while the gateway runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.k8s.processes import caller, started, wait_until_ready
from tests.k8s.rendered import folder

_SECONDS = 60.0
OTHER = """
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


def update(mounted: Path, files: dict[str, str], number: int) -> None:
    """Changes a mounted ConfigMap as the kubelet does: files are links through one folder, which changes."""
    made = mounted / f"..{number}"
    made.mkdir()
    for name, text in files.items():
        (made / name).write_text(text, encoding="utf-8")
    turned = mounted / "..data_tmp"
    turned.symlink_to(made.name)
    turned.rename(mounted / "..data")
    for name in files:
        link = mounted / name
        if not link.is_symlink():
            link.unlink(missing_ok=True)
            link.symlink_to(Path("..data") / name)
    for link in mounted.glob("*.toml"):
        if link.name not in files:
            link.unlink()


@pytest.mark.slow
async def test_judges_come_and_go_without_a_rollout(tmp_path: Path) -> None:
    rendering = folder("base")
    files = dict(rendering.one("ConfigMap", "judges")["data"])
    variables = {"DRAMATURG_GATEWAY_JUDGES_POLL_SECONDS": "0.1"}
    async with started(rendering, tmp_path, variables) as (replica, process):
        mounted = tmp_path / "gateway" / "judges"
        update(mounted, files, 1)
        await wait_until_ready(replica, process)
        async with caller(tmp_path) as client:

            async def critics() -> set[str]:
                return {judge.name for judge in await client.list_judges("critic")}

            async def become(*names: str) -> None:
                async with asyncio.timeout(_SECONDS):
                    while await critics() != set(names):  # noqa: ASYNC110 - nothing tells of it
                        await asyncio.sleep(0.1)

            await become("llm")
            update(mounted, {**files, "other-critic.toml": OTHER}, 2)
            await become("llm", "other", "next")
            update(mounted, files, 3)
            await become("llm")
        assert process.returncode is None
        assert replica.log.read_text().count('"listening"') == 1
