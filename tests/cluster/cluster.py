"""All services of an overlay, as processes on this machine."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dramaturg.client import DramaturgClient
from dramaturg.service.settings import ChannelSettings
from tests.cluster.names import LAG_SECONDS, Names
from tests.cluster.replicas import Replica, bare_environment
from tests.cluster.volumes import CertificateVolume, Secrets, Tokens, issue
from tests.k8s.rendered import ROOT, Pod, Rendering
from tests.support.certificates import Authority, Certificate
from tests.support.kubernetes import Object

# Of 127.0.0.0/8, and not those of another run of these tests on the machine.
_NETWORK = f"127.{64 + (os.getpid() >> 8) % 128}.{os.getpid() % 256}"
_ADDRESSES = 255

GATEWAY = "gateway"
MIGRATION = "migration"
_SERVERS = ("generation", "embedding")
"""What the other services call."""
TWO_EACH = (GATEWAY, "generation", "synthesize", "critic", "execute", "commonsense")
"""What an evaluation of scripts passes through, and what has two replicas therefore."""


@dataclass(frozen=True)
class Release:
    """What is deployed: manifests, and the code that their images hold."""

    rendering: Rendering
    """The rendered manifests."""
    checkout: Path = ROOT
    """The folder of the code, with its stubs."""

    def pod(self, name: str) -> Pod:
        """The pod of a service; that of "migration" is the gateway's first container."""
        return self.rendering.migration() if name == MIGRATION else self.rendering.pod(name)


class Deployment:
    """The replicas of one service.

    Args:
        declared: The rendered object.
        make: Makes a replica that is not started.
        names: Where its name leads to its replicas.
    """

    def __init__(self, declared: Object, make: Callable[[], Replica], names: Names) -> None:
        self.name: str = declared["metadata"]["name"]
        self.replicas: list[Replica] = []
        self._min_ready_seconds = declared["spec"].get("minReadySeconds", 0)
        self._make = make
        self._names = names
        strategy = declared["spec"]["strategy"]["rollingUpdate"]
        assert strategy == {"maxSurge": 1, "maxUnavailable": 0}, (
            "roll() replaces one by one, the new one first"
        )

    async def scale(self, count: int) -> None:
        """Starts so many replicas."""
        await asyncio.gather(*(self._add() for _ in range(count)))

    async def roll(self) -> None:
        """Replaces its replicas one by one. An old one's end is not waited for before the next is replaced.

        Returns when all old ones have ended.
        """
        async with asyncio.TaskGroup() as ending:
            for old in list(self.replicas):
                await self._add(settle=True)
                ending.create_task(self._end(old))

    async def _end(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        self._names.remove(self.name, replica.address)
        await replica.terminate()

    async def _add(self, *, settle: bool = False) -> None:
        replica = self._make()
        await replica.start(self._names)
        await replica.wait_until_ready()
        self.replicas.append(replica)
        self._names.add(self.name, replica.address)
        if settle:
            await asyncio.sleep(self._min_ready_seconds)


class Cluster:
    """The deployments of a rendering, with an authority of their own.

    What differs from the manifests: each replica has an address of 127.0.0.0/8, volumes have other paths,
    and ``overrides`` are added. There is no collector: traces that cannot be handed in must disturb nobody.

    Args:
        release: What is deployed.
        folder: Where everything that is written goes.
        secrets: What the Secrets hold, but for the gateway's callers.
        overrides: Further variables, by service.

    Attributes:
        authority: Who signs certificates.
        names: The names that its pods see.
        deployments: The services, once deployed.
    """

    def __init__(
        self,
        release: Release,
        folder: Path,
        secrets: Secrets,
        overrides: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._release = release
        self._folder = folder
        self._tokens = Tokens(folder)
        self._secrets, self._overrides = {**secrets, "callers": self._tokens.callers}, overrides
        self._numbers = itertools.count(1)
        self._made: list[Replica] = []
        self._issued: dict[tuple[Authority, str], Certificate] = {}
        self.names = Names(folder / "hosts")
        self.deployments: dict[str, Deployment] = {}
        self.authority = self.new_authority("authority")
        self._trusted = [self.authority]
        self._client = CertificateVolume(folder / "client")
        self._put(self._client, self._release.pod(GATEWAY))

    async def deploy(self, replicas: Mapping[str, int]) -> None:
        """Runs the migration, then starts every service, and waits until all names are known.

        Args:
            replicas: How many of each; one of those not named.
        """
        migration = self._make(MIGRATION)
        await migration.start(self.names)
        assert await migration.ended() == 0, migration.log.read_text()[-4000:]
        for declared in self._release.rendering.of("Deployment"):
            name = declared["metadata"]["name"]
            self.deployments[name] = Deployment(declared, self._maker(name), self.names)
        # A client learns of all replicas when a connection ends, within five minutes. Servers that start
        # before their clients give that state at once.
        for names in (_SERVERS, self.deployments.keys() - {*_SERVERS, GATEWAY}, {GATEWAY}):
            await asyncio.gather(*(self.deployments[name].scale(replicas.get(name, 1)) for name in names))
            await asyncio.sleep(LAG_SECONDS)

    async def roll(self, services: Iterable[str], release: Release | None = None) -> None:
        """Rolls services at the same time, as an upgrade does.

        Args:
            services: The services.
            release: What the new replicas run. ``None``: the same as the old ones.
        """
        self._release = release or self._release
        await asyncio.gather(*(self.deployments[name].roll() for name in services))

    def new_authority(self, name: str) -> Authority:
        """An authority that nobody trusts yet."""
        return Authority(self._folder / name, name)

    async def rotate(
        self, *, trusted: Sequence[Authority] | None = None, issuer: Authority | None = None
    ) -> None:
        """Gives every pod and the client new files.

        Args:
            trusted: Whose certificates are believed from now on. ``None``: those of the same.
            issuer: Who signs new certificates for all. ``None``: they keep theirs.
        """
        self._trusted = list(trusted or self._trusted)
        if issuer is not None:
            self.authority = issuer
            for replica in self.replicas:
                await asyncio.to_thread(self._certificate, replica.pod)
        self._put(self._client, self._release.pod(GATEWAY))
        for replica in self.replicas:
            assert replica.volumes.certificate is not None
            self._put(replica.volumes.certificate, replica.pod)

    def client(self, *, token: bool = True) -> DramaturgClient:
        """A client of one replica of the gateway, with the tenant's token or without."""
        settings = self.stranger(GATEWAY)
        if token:
            settings = settings.model_copy(update={"token_file": self._tokens.secret})
        return DramaturgClient(self.deployments[GATEWAY].replicas[0].target, settings)

    def stranger(self, service: str) -> ChannelSettings:
        """How somebody reaches one replica of a service who has nothing to show."""
        return ChannelSettings(tls_ca_file=self._client.authorities, tls_server_name=service)

    @property
    def client_environment(self) -> dict[str, str]:
        """The variables of a client that runs as a pod."""
        return {
            **bare_environment(self._folder),
            "DRAMATURG_CHANNEL_TLS_CA_FILE": str(self._client.authorities),
            "DRAMATURG_CHANNEL_TOKEN_FILE": str(self._tokens.secret),
        }

    @property
    def replicas(self) -> list[Replica]:
        """All replicas."""
        return [replica for one in self.deployments.values() for replica in one.replicas]

    async def dead(self) -> list[str]:
        """The pods that the kubelet would start again."""
        alive = await asyncio.gather(*(replica.alive() for replica in self.replicas))
        return [replica.name for replica, lives in zip(self.replicas, alive, strict=True) if not lives]

    async def kill(self) -> None:
        """Ends everything at once."""
        await asyncio.gather(*(replica.kill() for replica in self._made))

    def _maker(self, name: str) -> Callable[[], Replica]:
        return lambda: self._make(name)

    def _make(self, service: str) -> Replica:
        pod = self._release.pod(service)
        number = next(self._numbers)
        assert number < _ADDRESSES, "the network has no more addresses"
        replica = Replica(
            pod,
            self._release.rendering,
            name=f"{pod.name}-{number}",
            address=f"{_NETWORK}.{number}",
            folder=self._folder,
            secrets=self._secrets,
            overrides=self._overrides.get(pod.name, {}),
            checkout=self._release.checkout,
        )
        if replica.volumes.certificate is not None:
            self._put(replica.volumes.certificate, pod)
        self._made.append(replica)
        return replica

    def _put(self, volume: CertificateVolume, pod: Pod) -> None:
        volume.put(self._certificate(pod), [authority.certificate for authority in self._trusted])

    def _certificate(self, pod: Pod) -> Certificate:
        """The certificate of a pod, the same for all replicas of a service."""
        key = self.authority, pod.name
        if key not in self._issued:
            self._issued[key] = issue(self.authority, pod, self._release.rendering.namespace)
        return self._issued[key]
