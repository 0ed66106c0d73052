"""A served contract: a gRPC service, its implementation, identity and gate; protocols in front of it.

A gate holds the admission rules of a deployment, for example quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from dramaturg.api.generation.v1.generation_service_pb2 import ProviderCheck
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.service.auth.caller import Caller
from dramaturg.service.context import Context, Metadata
from dramaturg.service.health import ContractHealth
from dramaturg.service.settings import ServerSettings

Answered = Callable[[Any], None]
"""Called with each response of a call."""


class Gate(Protocol):
    """Starts the calls of a contract, and encloses them after authorization and admission."""

    async def start(self, method: str, tenant: str) -> None:
        """Waits until the call of the current task may start.

        Called before the request is read where a token identifies the caller, and just before [passing]
        where its certificate does.

        Args:
            method: The full name of the method.
            tenant: The tenant of the caller.
        """

    def passing(
        self, method: str, items: int, context: Context
    ) -> AbstractAsyncContextManager[Answered | None]:
        """Encloses a call by ``async with``, which gives what learns its responses, if anything does.

        Args:
            method: The full name of the method.
            items: The number of items in the request (``Contract.weights``), at least 1.
            context: The context that the servicer gets, which tells the call from others.

        Raises:
            ServiceError: When entered: the call is refused.
        """


_NO_LIMITS: Mapping[str, int] = MappingProxyType({})
_NO_WEIGHTS: Mapping[str, Callable[[Any], int]] = MappingProxyType({})


class CalledModels(Protocol):
    """The models that a service calls, as ``IdentityService`` reports them."""

    async def check_model(
        self, model: str, *, configuration_only: bool = False, check_usage: bool = False
    ) -> ProviderCheck:
        """Checks whether a model can be called. Buys nothing, unless ``check_usage`` is set.

        Args:
            model: The model. Empty: that of requests that name none.
            configuration_only: Whether its provider is not called.
            check_usage: Whether it is also found out if answers state token counts, if need be by a call.
        """

    async def model_waits(self) -> Sequence[str]:
        """Returns the rate limits that calls wait for, as text."""


@dataclass(frozen=True)
class Contract:
    """One gRPC service that a server serves.

    Example:
        >>> Contract.make(
        ...     judge_service_pb2.DESCRIPTOR.services_by_name["JudgeService"],
        ...     judge_service_pb2_grpc.add_JudgeServiceServicer_to_server,
        ...     MyCritic(),
        ...     name="my-critic",
        ...     version="1.0.0",
        ...     description="Compares a script with a reference.",
        ...     criteria=["no_missing_steps"],
        ... )
    """

    descriptor: ServiceDescriptor
    """The service's descriptor. Naming it imports the module that reflection needs."""
    add: Callable[[Any, grpc.aio.Server], None]
    """The generated function that adds a servicer to a server."""
    servicer: Any
    """The implementation. Its methods are coroutines or async generators: a plain function would block the
    event loop.
    """
    identity: Identity
    """The answer of ``IdentityService``."""
    permission: str = ""
    """The permission that its methods need, in place of those of ``auth.permissions``. Required for contracts
    without an entry there, on servers that authenticate callers.
    """
    gate: Gate | None = None
    """The admission rule of the deployment, for example a quota. None: every call passes."""
    health: ContractHealth = field(default_factory=ContractHealth)
    """The health that is reported for the contract until the server stops."""
    models: CalledModels | None = None
    """The models that the service calls. None: it calls none."""
    unlimited: frozenset[str] = frozenset()
    """The methods, by name, that have no time limit but the deadline of the caller."""
    large: frozenset[str] = frozenset()
    """The methods, by name, with responses of megabytes. A tenant is given few of them at once
    (``interceptors.large_responses``); the others wait.
    """
    minimum_default_seconds: float = 0
    """A server whose ``default_deadline_seconds`` is not above it refuses to start."""
    weights: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    """The number of items in a request, by the method's name. Items count against
    ``server.max_concurrent_calls`` and are given to the gate; a request of any other method counts as one.
    """

    @classmethod
    def make(
        cls,
        descriptor: ServiceDescriptor,
        add: Callable[[Any, grpc.aio.Server], None],
        servicer: Any,
        *,
        name: str,
        version: str,
        description: str,
        criteria: Iterable[str] = (),
        capabilities: Iterable[str] = (),
        limits: Mapping[str, int] = _NO_LIMITS,
        permission: str = "",
        weights: Mapping[str, Callable[[Any], int]] = _NO_WEIGHTS,
    ) -> Contract:
        """Makes a contract; the keyword arguments are the fields of ``identity.v1.Identity`` and of this."""
        identity = Identity(
            name=name,
            version=version,
            contract=descriptor.full_name,
            description=description,
            criteria=criteria,
            capabilities=capabilities,
            limits=limits,
        )
        return cls(descriptor, add, servicer, identity, permission, weights=weights)

    @property
    def full_name(self) -> str:
        """The full name, also in health checks, for example ``dramaturg.api.judging.v1.JudgeService``."""
        return self.identity.contract


@dataclass(frozen=True)
class Backend:
    """The gRPC server that a front forwards calls to."""

    channel: grpc.aio.Channel
    """Connected to the server over a socket that other users of the machine cannot open. The server takes
    the caller's address from the metadata ``x-dramaturg-peer`` of these calls."""
    contracts: Sequence[Contract]
    """The contracts that the server serves."""
    settings: ServerSettings
    """The settings of the server."""
    authenticates: bool
    """Whether the server authenticates callers."""
    authenticate: Callable[[str, Metadata], bool]
    """Whether the credentials in the metadata of a call of a method are valid, or a certificate is needed in
    their place. The body of a request is read only then; the server decides itself."""
    find_caller: Callable[[Metadata], Caller | None]
    """Finds the caller with the credentials in the metadata of a call: ``ANONYMOUS`` where the server
    authenticates no callers, None for invalid credentials."""


class Front(Protocol):
    """Serves the contracts of a server over another protocol, by forwarding calls to it."""

    @property
    def host(self) -> str:
        """The address that it listens on."""

    async def start(self, backend: Backend) -> None:
        """Starts to listen, after the server has started.

        Raises:
            OSError: The address cannot be listened on.
            SettingsError: Its settings do not fit those of the server.
        """

    async def close(self) -> None:
        """Stops to listen. Requests that have arrived are still forwarded."""

    async def stop(self) -> None:
        """Waits for the calls in progress, up to the grace of the server, and takes no others."""
