"""Channels whose calls share tunnels from the first on, and calls of which it is seen whether they did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from dramaturg.api.agents.v1 import critic_service_pb2_grpc
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings
from dramaturg.service.tunnel.context import CarriedContext
from tests.support.grpc_servers import Critique, critic, serve


def always(**settings: Any) -> ChannelSettings:
    """Settings by which every unary call is carried."""
    return ChannelSettings(tunnel_calls_per_second=1, **settings)


NEVER = ChannelSettings(tunnel_calls_per_second=0)
"""Settings by which every call is made by itself."""


def is_carried(context: Any) -> bool:
    """Whether a servicer's context is that of a call in a tunnel."""
    return isinstance(context, CarriedContext)


def critics(channel: grpc.aio.Channel) -> critic_service_pb2_grpc.CriticServiceAsyncStub:
    """A stub that calls critics."""
    return critic_service_pb2_grpc.CriticServiceStub(channel)


@asynccontextmanager
async def carried_critic(
    critique: Critique, channel: ChannelSettings | None = None, **server: Any
) -> AsyncIterator[critic_service_pb2_grpc.CriticServiceAsyncStub]:
    """Serves a critic and yields a stub whose calls are carried."""
    async with (
        serve(critic(critique), **server) as served,
        open_channel(served.target, channel or always()) as opened,
    ):
        yield critics(opened)
