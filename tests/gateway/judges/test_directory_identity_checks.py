"""A gateway whose judges refuse its identity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeHealth
from dramaturg.client import DramaturgClient
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import RegisteredJudge, serve_gateway
from tests.support.auth import Holder, holder, token_settings
from tests.support.gateway import Fake

GATEWAY = holder("", "service")
CONTRACT = "dramaturg.api.evaluation.v1.EvaluationService"
Status = health_pb2.HealthCheckResponse


@asynccontextmanager
async def gateway(folder: Path, *judges: tuple[str, Holder]) -> AsyncIterator[str]:
    """A gateway of judges, each of which knows one caller."""
    async with AsyncExitStack() as stack:
        registered = []
        for role, known in judges:
            settings = token_settings(folder, known)
            settings.tokens_file.rename(own := folder / f"{role}.json")  # type: ignore[union-attr]
            auth = settings.model_copy(update={"tokens_file": own})
            server = Server([Fake(role).contract()], ServerSettings.loopback(), auth)
            await stack.enter_async_context(server)
            registered.append(RegisteredJudge(role, server.target))
        yield (await stack.enter_async_context(serve_gateway(*registered, identity_check_seconds=0.1))).target


async def status(target: str, expected: int, seconds: float = 10) -> int:
    """The health of the gateway, as soon as it is the expected one."""
    async with grpc.aio.insecure_channel(target) as channel, asyncio.timeout(seconds):
        async for answer in health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=CONTRACT)
        ):
            if answer.status == expected:
                break
    return expected


@pytest.fixture(autouse=True)
def _token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gateway.token"
    file.write_text(GATEWAY.token)
    monkeypatch.setenv("DRAMATURG_CHANNEL_TOKEN_FILE", str(file))


async def test_a_gateway_that_every_judge_refuses_is_not_serving_and_says_so(tmp_path: Path) -> None:
    stranger = holder("team-b", "service")
    async with (
        gateway(tmp_path, ("critic", stranger), ("execute", stranger)) as target,
        DramaturgClient(target) as client,
    ):
        await status(target, Status.NOT_SERVING)
        judges = await client.list_judges()
        assert {judge.health for judge in judges} == {JudgeHealth.JUDGE_HEALTH_REFUSED}
        assert judges[0].error.startswith("it refuses the identity of the gateway: UNAUTHENTICATED")


async def test_one_judge_that_refuses_does_not_stop_the_gateway(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, ("critic", holder("team-b", "service")), ("execute", GATEWAY)) as target,
        DramaturgClient(target) as client,
    ):
        found = {judge.role: judge.health for judge in await client.list_judges()}
        assert found == {
            "critic": JudgeHealth.JUDGE_HEALTH_REFUSED,
            "execute": JudgeHealth.JUDGE_HEALTH_SERVING,
        }
        await status(target, Status.SERVING)


async def test_a_gateway_serves_again_when_a_judge_accepts_it(tmp_path: Path) -> None:
    async with gateway(tmp_path, ("critic", holder("team-b", "service"))) as target:
        await status(target, Status.NOT_SERVING)
        token_settings(tmp_path, GATEWAY).tokens_file.rename(tmp_path / "critic.json")  # type: ignore[union-attr]
        await status(target, Status.SERVING)
