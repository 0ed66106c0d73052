"""Several services in one process, and a gateway that knows them by their addresses."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.client import DramaturgClient
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.roles import JUDGE_CONTRACT, ROLES, JudgeRole
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import RegisteredJudge, serve_gateway
from tests.support.command_line import finish, start
from tests.support.gateway import evaluate_result, scripts_request
from tests.support.judges import STEPS, TASK, candidate
from tests.support.ports import free_port
from tests.support.processes import until_serving

JUDGES = ("critic", "execute", "commonsense")
SERVING = health_pb2.HealthCheckResponse.SERVING


async def health(target: str, name: str) -> int:
    async with grpc.aio.insecure_channel(target) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))
    return int(answer.status)


async def test_one_process_serves_several_judges_of_one_contract(tmp_path: Path) -> None:
    names = ("embedding", "synthesize", *JUDGES)
    base, probes = free_port(len(names)), free_port()
    targets = {name: f"127.0.0.1:{base + number}" for number, name in enumerate(names)}
    environment = {
        ServerSettings.variable("probe_port"): str(probes),
        **{f"DRAMATURG_{name.upper()}_EMBEDDING_TARGET": targets["embedding"] for name in names[1:]},
    }
    arguments = ("serve", *names, "--backend", "offline", "--port", str(base))
    async with start(*arguments, environment=environment) as process:
        await until_serving(f"127.0.0.1:{probes}", process)
        for name in JUDGES:
            role = ROLES[name]
            assert isinstance(role, JudgeRole)
            async with grpc.aio.insecure_channel(targets[name]) as channel:
                identity = (await IdentityServiceStub(channel).GetIdentity(GetIdentityRequest())).identity
                assessment = await judge_one(channel, judge_request(TASK, [candidate(*STEPS)]), timeout=30)
            assert (identity.name, identity.contract) == (f"offline-{name}", JUDGE_CONTRACT)
            assert tuple(verdict.criterion for verdict in assessment.verdicts) == role.criteria
            assert assessment.provenance.name == f"offline-{name}"
        for name in ("", *names, JUDGE_CONTRACT):
            assert await health(f"127.0.0.1:{probes}", name) == SERVING
        assert await health(targets["critic"], "critic") == SERVING
        with pytest.raises(grpc.aio.AioRpcError, match="no such service"):
            await health(targets["critic"], "execute")
        registered = [RegisteredJudge(name, targets[name]) for name in names[1:]]
        async with serve_gateway(*registered) as gateway, DramaturgClient(gateway.target) as client:
            result = await evaluate_result(client, scripts_request(1))
        process.terminate()
        finished = await finish(process)
    assert finished.code == 0, finished.err
    [judged] = result.candidates
    assert {one.role: one.assessment.provenance.name for one in judged.assessments} == {
        name: f"offline-{name}" for name in JUDGES
    }
    assert [verdict.criterion for verdict in judged.verdicts] == list(ABSEVAL)
