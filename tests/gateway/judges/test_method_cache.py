"""What calls a method of a judge is made once, however many stubs there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.service.delegation import DelegatingChannel
from gateway.judges.registry import open_registry
from gateway.settings import JudgeEntry
from tests.support.gateway import Fake
from tests.support.grpc_servers import serve


class Noting(DelegatingChannel):
    """Notes the methods that are bound on a channel."""

    def __init__(self, channel: grpc.aio.Channel, bound: list[str]) -> None:
        self._channel = channel
        self._bound = bound

    def behind(self) -> grpc.aio.Channel:
        """The channel that makes the calls."""
        return self._channel

    def delegate(self, make: Callable[[grpc.aio.Channel], Any]) -> Callable[..., Any]:
        """What makes the calls of one method."""
        return make(self._channel)  # type: ignore[no-any-return]

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Notes the method."""
        self._bound.append(method)
        return super().unary_unary(method, *args, **kwargs)


async def test_stubs_of_a_judge_share_what_calls_it() -> None:
    bound: list[str] = []
    fake = Fake("critic", name="a")
    async with serve(fake.contract()) as server:
        entry = JudgeEntry(role="critic", name="a", target=server.target)

        def connect(target: str) -> grpc.aio.Channel:
            return Noting(grpc.aio.insecure_channel(target), bound)

        async with open_registry([entry], 1, connect) as registry:
            (judge,) = registry.all()
            for _ in range(3):
                stub = IdentityServiceStub(judge.channel)
                answer = await stub.GetIdentity(GetIdentityRequest(contract=judge.role.contract))
                assert answer.identity.contract == judge.role.contract
    assert bound == ["/dramaturg.api.identity.v1.IdentityService/GetIdentity"]
