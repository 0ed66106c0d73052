"""A judge is added by a key of the ConfigMap ``judges``, while the gateway runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.k8s.processes import caller, started
from tests.k8s.rendered import folder

_SECONDS = 60.0
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
                async with asyncio.timeout(_SECONDS):
                    while await critics() != set(names):  # noqa: ASYNC110 - nothing tells of it
                        await asyncio.sleep(0.1)

            await become("llm")
            mounted.put({**files, "other-critic.toml": OTHER})
            await become("llm", "other", "next")
            mounted.put(files)
            await become("llm")
        assert replica.running
        assert replica.log.read_text().count('"listening"') == 1
