"""Which tunnel takes the next call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import grpc

from dramaturg.service.metadata import Pair
from dramaturg.service.tunnel.tunnel import Tunnel

TURN_SECONDS = 1.0
"""How long a tunnel takes calls: a replica that is new gets some, one that stops gets none any more."""
TURN_CALLS = 64
"""How many calls it takes at most, for the same; at least half as many."""
MOST_TUNNELS = 16
"""How many take calls at the same time at most."""
UNKNOWN_SECONDS = 60.0
"""For how long no tunnel is tried where a server did not know of any."""
REFUSED_SECONDS = 2.0
"""For how long none is tried where one was refused for another reason, such as who opened it."""
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
        self._tries = 0
        """How many tunnels in a row went where there was one already."""
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
        for used in [one for one in turn if one.full]:
            turn.remove(used)
            used.retire()
        if len(turn) < min(len(self._seen) + self._more, MOST_TUNNELS):
            tunnel = self._opened(metadata)
        else:
            tunnel = turn.pop(0)
        turn.append(tunnel)
        return tunnel

    def connected(self, tunnel: Tunnel) -> None:
        """Learns which server is at the end of a tunnel."""
        now = _now()
        self._more = tunnel.server not in self._seen
        forgotten = now - _REMEMBERED_SECONDS
        self._seen = {name: heard for name, heard in self._seen.items() if heard > forgotten}
        self._seen[tunnel.server] = now
        others = {one.server for one in self._turn if one is not tunnel and not one.retired}
        missing = self._seen.keys() - others - {tunnel.server}
        # gRPC gives streams to the servers in turn, but others come in between.
        if tunnel.server in others and (len(self._turn) > len(self._seen) or self._tries < len(missing)):
            self._tries += 1
            tunnel.retire()
        else:
            self._tries = 0

    def refused(self, code: grpc.StatusCode) -> None:
        """Learns that a server takes no tunnels now."""
        unknown = code is grpc.StatusCode.UNIMPLEMENTED
        self._refused_until = _now() + (UNKNOWN_SECONDS if unknown else REFUSED_SECONDS)

    def retire(self) -> None:
        """Has all of them end when their last call is answered."""
        for tunnel in self._turn:
            tunnel.retire()

    async def ended(self) -> None:
        """Waits until they have."""
        if self._open:
            await asyncio.wait([*self._open])

    def _opened(self, metadata: Iterable[Pair]) -> Tunnel:
        # Of chance, or they would keep step with other calls, which take turns with them at the servers.
        calls = random.randint(TURN_CALLS // 2, TURN_CALLS)  # noqa: S311 - balances load
        tunnel = Tunnel(self._channel, metadata, self, calls)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(TURN_SECONDS, tunnel.retire)
        ending = loop.create_task(tunnel.ended())
        self._open.add(ending)
        ending.add_done_callback(self._open.discard)
        ending.add_done_callback(lambda _: timer.cancel())
        return tunnel


def _now() -> float:
    return asyncio.get_running_loop().time()
