from __future__ import annotations

import asyncio
import sys

import pytest

from dramaturg.testing import serve
from tests.support.grpc_servers import silent, synthesizer

CONTRACT = "dramaturg.api.agents.v1.SynthesizeService"


@pytest.mark.parametrize(
    ("contract", "code", "output"), [("", 0, "SERVING"), (CONTRACT, 0, "SERVING"), ("other", 1, "NOT_FOUND")]
)
async def test_the_exit_code_says_whether_a_contract_is_served(contract: str, code: int, output: str) -> None:
    async with serve(synthesizer(silent)) as server:
        assert await health(server.target, contract) == (code, output)


async def test_a_server_that_does_not_answer_is_not_healthy() -> None:
    assert await health("127.0.0.1:1", "") == (1, "UNAVAILABLE")


async def health(target: str, contract: str) -> tuple[int | None, str]:
    """The exit code, and the first word of the output."""
    command = (sys.executable, "-m", "dramaturg.service.health_check", target, contract, "--timeout", "5")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, output.decode().split(":")[0].strip()
