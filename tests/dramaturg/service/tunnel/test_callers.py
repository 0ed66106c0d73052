"""Who may open a tunnel, and who is who in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest, CritiqueResponse
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Server
from tests.support.auth import holder, token_settings
from tests.support.grpc_servers import (
    critic,
    critique_request,
    server_settings,
    silent,
)
from tests.support.tunnels import always, critics, is_carried


async def test_each_call_is_its_own_callers(tmp_path: Path) -> None:
    """A tunnel that somebody opened lets nobody else in."""
    served: list[tuple[str, bool]] = []

    async def note(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        served.append((request.task.goal, is_carried(context)))
        return CritiqueResponse()

    operator, viewer = holder("team-a", "operator"), holder("team-a", "viewer")
    expired, unknown = holder("team-a", "operator", expired=True), holder("team-b", "operator")
    settings = token_settings(tmp_path, operator, viewer, expired)
    async with (
        Server([critic(note)], server_settings(), settings) as server,
        open_channel(server.target, always()) as channel,
    ):

        async def code(goal: str, token: str | None) -> grpc.StatusCode:
            metadata = () if token is None else (("authorization", f"Bearer {token}"),)
            call = critics(channel).Critique(critique_request(goal=goal), metadata=metadata)
            answered: grpc.StatusCode = await call.code()
            return answered

        assert await code("the operator's", operator.token) is grpc.StatusCode.OK
        assert await code("the viewer's", viewer.token) is grpc.StatusCode.PERMISSION_DENIED
        for token in (expired.token, unknown.token, None):
            assert await code("a stranger's", token) is grpc.StatusCode.UNAUTHENTICATED
        assert await code("the operator's", operator.token) is grpc.StatusCode.OK
    assert served == [("the operator's", True)] * 2


async def test_who_may_not_open_a_tunnel_is_refused_by_itself(tmp_path: Path) -> None:
    settings = token_settings(tmp_path, holder("team-a", "operator"))
    async with (
        Server([critic(silent)], server_settings(), settings) as server,
        open_channel(server.target, always()) as channel,
    ):
        calls = [critics(channel).Critique(critique_request()) for _ in range(10)]
        codes = {await call.code() for call in calls}
    assert codes == {grpc.StatusCode.UNAUTHENTICATED}
