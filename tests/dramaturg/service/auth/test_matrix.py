"""Every method of every contract, called with every role.

An empty request breaks limits of most methods. A caller who may call one then hears so, and nobody else does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from dramaturg.service.auth.caller import TENANT_METADATA, tenant_of
from dramaturg.service.auth.settings import OPEN, ROLES, RULES, permissions_of
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.service.interceptors import limits
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from tests.support.auth import (
    Holder,
    call,
    channel_of,
    every_method,
    every_service,
    holder,
    noting,
    path,
    token_settings,
)

METHODS = list(every_method())
each_method = pytest.mark.parametrize("method", METHODS, ids=[method.full_name for method in METHODS])

OWN = {"dramaturg.api.identity.v1.IdentityService"}
"""What every server brings itself."""
KNOWN = {role: holder("" if role == "service" else "team-a", role) for role in ROLES}
OTHER = {role: holder("team-b", role) for role in ROLES}
EXPIRED = holder("team-a", *(role for role in ROLES if role != "service"), expired=True)
UNKNOWN = holder("team-a", "evaluator", "nobody")


@dataclass
class Platform:
    """A server of every contract, and who was served."""

    target: str
    folder: Path
    served: list[tuple[str, str]] = field(default_factory=list)

    async def try_as(
        self, who: Holder | None, method: MethodDescriptor, **options: Any
    ) -> ServiceError | None:
        """Calls a method with a token; returns the error, if there is one."""
        async with channel_of(self.target, self.folder, who) as channel:
            try:
                await call(channel, method, **options)
            except grpc.aio.AioRpcError as error:
                return from_rpc_error(error)
        return None


@pytest.fixture
async def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Platform]:
    def accept(message: object, size: int | None = None) -> None:
        """Lets empty requests through, so that it is seen who reaches the servicer."""

    monkeypatch.setattr(limits, "validate", accept)
    made = Platform("", tmp_path)

    def note(method: str, context: Any) -> None:
        made.served.append((method, tenant_of(context)))

    contracts = [noting(service, note) for service in every_service() if service.full_name not in OWN]
    known = [*KNOWN.values(), *OTHER.values(), EXPIRED]
    settings = token_settings(tmp_path, *known)
    async with Server(contracts, ServerSettings.loopback(drain_grace_seconds=0.2), settings) as server:
        made.target = server.target
        yield made


def test_every_method_has_a_rule_and_every_rule_a_method() -> None:
    names = {path(method) for method in METHODS}
    rules = {name for name in RULES if not name.startswith("/grpc.health.")}
    assert names == rules


def test_nothing_of_ours_is_open() -> None:
    assert {name for name, rule in RULES.items() if rule == OPEN} == {
        f"/grpc.health.v1.Health/{method}" for method in ("Check", "List", "Watch")
    }


@each_method
async def test_unauthenticated_callers_get_no_further_information(
    platform: Platform, method: MethodDescriptor
) -> None:
    errors = [await platform.try_as(who, method) for who in (None, UNKNOWN, EXPIRED)]
    for error in errors:
        assert error is not None
        assert (error.code, error.reason_name) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "ERROR_REASON_UNAUTHENTICATED",
        )
    assert len({error.message for error in errors if error}) == 1, "the caller learns what was wrong"
    assert platform.served == []


@each_method
async def test_a_role_serves_for_what_it_is_given_for(platform: Platform, method: MethodDescriptor) -> None:
    may = {role for role in ROLES if RULES[path(method)] in permissions_of([role])}
    assert may, "nobody may call it"
    for role, who in KNOWN.items():
        platform.served.clear()
        error = await platform.try_as(who, method)
        if role in may:
            own = method.containing_service.full_name in OWN
            assert error is None or (own and error.reason_name == "ERROR_REASON_FIELD_INVALID")
            assert own or platform.served == [(path(method), who.tenant)]
        else:
            assert error is not None
            assert (error.code, error.reason_name) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "ERROR_REASON_PERMISSION_DENIED",
            )
            assert error.metadata == {"method": path(method)}
            assert platform.served == []


@each_method
async def test_only_a_service_calls_for_another_tenant(platform: Platform, method: MethodDescriptor) -> None:
    for role, who in OTHER.items():
        platform.served.clear()
        await platform.try_as(who, method, metadata=[(TENANT_METADATA, "team-a")])
        expected = "team-a" if role == "service" else "team-b"
        assert {tenant for _, tenant in platform.served} <= {expected}
