from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeHealth
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityResponse, Identity
from dramaturg.judge.roles import CRITIC
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import open_registry
from gateway.settings import JudgeEntry
from tests.support.gateway import Fake, gateway_client


async def test_judges_are_listed_by_role_with_who_they_are_and_how() -> None:
    fakes = [
        Fake("execute", name="gone", target="127.0.0.1:1"),
        Fake("critic", name="a"),
        Fake("critic", name="b", default=True, capabilities=["uses-pool"]),
        Fake("commonsense", name="mixed-up", serves="critic"),
        Fake("rubric-judge", name="own", criteria=["polite"]),
    ]
    async with gateway_client(*fakes) as client:
        judges = await client.list_judges()
        critics = await client.list_judges("critic")
    shown = [
        (judge.role, judge.name, judge.default_for_role, JudgeHealth.Name(judge.health)[13:])
        for judge in judges
    ]
    assert shown == [
        ("critic", "a", False, "SERVING"),
        ("critic", "b", True, "SERVING"),
        ("execute", "gone", True, "UNREACHABLE"),
        ("commonsense", "mixed-up", True, "WRONG_CONTRACT"),
        # The criteria of this role are those of callers.
        ("rubric-judge", "own", True, "SERVING"),
    ]
    assert [judge.name for judge in critics] == ["a", "b"]
    assert judges[1].identity.name == "fake-critic"
    assert list(judges[1].identity.capabilities) == ["uses-pool"]
    assert not judges[1].error
    assert judges[1].latency.ToNanoseconds() > 0
    assert not judges[2].HasField("identity")
    assert "UNAVAILABLE" in judges[2].error
    assert judges[3].error.startswith("it judges none of the criteria of commonsense, only no_missing_steps")


async def test_one_judge_can_be_asked_for() -> None:
    async with gateway_client(Fake("critic", name="a")) as client:
        assert (await client.check_judge("critic", "a")).health == JudgeHealth.JUDGE_HEALTH_SERVING
        with pytest.raises(ServiceError) as caught:
            await client.check_judge("critic", "z")
        with pytest.raises(ServiceError) as role:
            await client.list_judges("poet")
    assert caught.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN
    assert caught.value.metadata == {"role": "critic", "judge": "z"}
    assert [violation.field for violation in caught.value.violations] == ["judge"]
    assert [violation.field for violation in role.value.violations] == ["role"]


class CountedIdentity(grpc.GenericRpcHandler):
    """Answers GetIdentity, and knows how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if not str(details.method).endswith("/GetIdentity"):
            return None

        async def answer(request: bytes, context: Any) -> bytes:
            self.asked += 1
            if self.asked == 1:
                await context.abort(grpc.StatusCode.INTERNAL, "not yet")
            identity = Identity(name="third-party", contract=CRITIC.contract)
            return GetIdentityResponse(identity=identity).SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)


async def test_an_identity_is_asked_once_and_a_failure_is_not_remembered() -> None:
    handler = CountedIdentity()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    directory = JudgeDirectory(timeout=5)
    entries = [JudgeEntry(role="critic", name="a", target=target)]
    async with open_registry(entries, 4) as registry, open_registry(entries, 4, identity_ttl=0) as forgetful:
        judge, other = registry.find("critic", "a"), forgetful.find("critic", "a")
        assert judge is not None
        assert other is not None
        assert await judge.identity.current() is None
        identities = await asyncio.gather(*(judge.identity.current() for _ in range(5)))
        assert handler.asked == 2
        assert {identity.name for identity in identities if identity} == {"third-party"}
        await other.identity.current()
        await other.identity.current()
        assert handler.asked == 4
        # It has no health service; that it says who it is is enough.
        assert (await directory.inspect(judge)).health == JudgeHealth.JUDGE_HEALTH_SERVING
    await server.stop(0)


async def test_whoever_shares_the_question_does_not_lose_it_when_another_gives_up() -> None:
    async with serve(Fake("critic").contract()) as server:
        entry = JudgeEntry(role="critic", name="a", target=server.target)
        async with open_registry([entry], 4) as registry:
            judge = registry.find("critic", "a")
            assert judge is not None
            impatient = asyncio.create_task(judge.identity.current())
            patient = asyncio.create_task(judge.identity.current())
            await asyncio.sleep(0)
            impatient.cancel()
            identity = await patient
    assert identity is not None
    assert identity.name == "fake-critic"
