"""Which tunnel takes the next call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import grpc

from dramaturg.service.metadata import Pair
from dramaturg.service.tunnel.tunnel import Tunnel

TURN_SECONDS = 1.0
"""How long a tunnel takes calls: a replica that is new gets some, one that stops gets none any more."""
TURN_CALLS = 64
"""How many calls it takes at most, for the same."""
MOST_TUNNELS = 16
"""How many take calls at the same time at most."""
REFUSED_SECONDS = 60.0
"""For how long no tunnel is tried where one was refused."""
_REMEMBERED_SECONDS = 10.0


class Tunnels:
    """Shares calls out among as many tunnels as there are servers behind the channel.

    gRPC's balancing gives each new stream to the next server. So with a tunnel for each, renewed in turn, the
    calls are balanced as if each was made by itself. How many servers there are is learnt from the names that
    they answer with.

    Args:
        channel: Opens the streams.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._turn: list[Tunnel] = []
        """Those that take calls; the next call is for the first."""
        self._open: set[asyncio.Task[None]] = set()
        self._seen: dict[str, float] = {}
        """When a server was last heard of, by its name."""
        self._more = True
        """Whether there may be servers of which nothing was heard yet."""
        self._refused_until = 0.0

    @property
    def welcome(self) -> bool:
        """Whether the servers take tunnels, as far as is known."""
        return _now() >= self._refused_until

    def next(self, metadata: Iterable[Pair]) -> Tunnel:
        """The tunnel for a call.

        Args:
            metadata: That of the call, which also says who opens a tunnel.
        """
        turn = self._turn
        for used in [one for one in turn if one.retired or one.begun >= TURN_CALLS]:
            turn.remove(used)
            used.retire()
        if len(turn) < min(len(self._seen) + self._more, MOST_TUNNELS):
            tunnel = self._opened(metadata)
        else:
            tunnel = turn.pop(0)
        turn.append(tunnel)
        return tunnel

    def connected(self, tunnel: Tunnel, server: str) -> None:
        """Learns which server is at the end of a tunnel."""
        now = _now()
        self._more = server not in self._seen
        forgotten = now - _REMEMBERED_SECONDS
        self._seen = {name: heard for name, heard in self._seen.items() if heard > forgotten}
        self._seen[server] = now
        if not self._more and len(self._turn) > len(self._seen):
            # It was opened to see whether there is another server.
            tunnel.retire()

    def refused(self) -> None:
        """Learns that a server takes no tunnels."""
        self._refused_until = _now() + REFUSED_SECONDS

    def retire(self) -> None:
        """Has all of them end when their last call is answered."""
        for tunnel in self._turn:
            tunnel.retire()

    async def ended(self) -> None:
        """Waits until they have."""
        if self._open:
            await asyncio.wait([*self._open])

    def _opened(self, metadata: Iterable[Pair]) -> Tunnel:
        tunnel = Tunnel(self._channel, metadata, self)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(TURN_SECONDS, tunnel.retire)
        ending = loop.create_task(tunnel.ended())
        self._open.add(ending)
        ending.add_done_callback(self._open.discard)
        ending.add_done_callback(lambda _: timer.cancel())
        return tunnel


def _now() -> float:
    return asyncio.get_running_loop().time()
