"""Callers with tokens, and servers of every contract that there is."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

import dramaturg.api
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.settings import ChannelSettings


@dataclass(frozen=True)
class Holder:
    """Who has a token."""

    token: str
    tenant: str
    roles: tuple[str, ...]
    expires: datetime | None = None

    def entry(self) -> dict[str, Any]:
        """What the file says of the token."""
        entry: dict[str, Any] = {
            "sha256": hashlib.sha256(self.token.encode()).hexdigest(),
            "principal": f"{'+'.join(self.roles)}@{self.tenant or 'platform'}",
            "tenant": self.tenant,
            "roles": list(self.roles),
        }
        return entry if self.expires is None else {**entry, "expires": self.expires.isoformat()}


def holder(tenant: str, *roles: str, expired: bool = False) -> Holder:
    """Somebody with a token that tells of nobody else."""
    expires = datetime.now(UTC) - timedelta(seconds=1) if expired else None
    return Holder(f"token-{tenant or 'platform'}-{'-'.join(roles)}-{expired}", tenant, roles, expires)


def write_tokens(folder: Path, *holders: Holder) -> Path:
    """A file with the tokens."""
    file = folder / "tokens.json"
    file.write_text(json.dumps({"tokens": [one.entry() for one in holders]}))
    return file


def token_settings(folder: Path, *holders: Holder, **settings: Any) -> AuthSettings:
    """The settings of a server that knows these callers."""
    return AuthSettings(tokens_file=write_tokens(folder, *holders), **settings)


def channel_of(target: str, folder: Path, who: Holder | None) -> grpc.aio.Channel:
    """A channel of the runtime whose calls bring somebody's token."""
    if who is None:
        return open_channel(target, ChannelSettings())
    file = folder / f"{hashlib.sha256(who.token.encode()).hexdigest()[:16]}.token"
    file.write_text(f"{who.token}\n")
    return open_channel(target, ChannelSettings(token_file=file))


def every_service() -> Sequence[ServiceDescriptor]:
    """Every service of every contract, found in the generated modules."""
    found: dict[str, ServiceDescriptor] = {}
    for module in pkgutil.walk_packages(dramaturg.api.__path__, "dramaturg.api."):
        if module.name.endswith("_pb2"):
            file: Any = importlib.import_module(module.name).DESCRIPTOR
            found |= {service.full_name: service for service in file.services_by_name.values()}
    return [found[name] for name in sorted(found)]


def every_method() -> Iterator[MethodDescriptor]:
    """Every method of every contract."""
    for service in every_service():
        yield from service.methods


def path(method: MethodDescriptor) -> str:
    """The full name by which a method is called."""
    return f"/{method.containing_service.full_name}/{method.name}"


Note = Callable[[str, Any], None]
"""Is told which method was called, with the call's context."""


def noting(service: ServiceDescriptor, note: Note, permission: str = "") -> Contract:
    """A contract that answers every call with an empty message."""
    return Contract.make(
        service, partial(_add, service), note, name="noting", version="1.0.0", description="Takes notes.",
        permission=permission,
    )  # fmt: skip


def _add(service: ServiceDescriptor, note: Note, server: grpc.aio.Server) -> None:
    handlers = {method.name: _handler(method, note) for method in service.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))


def _handler(method: MethodDescriptor, note: Note) -> Any:
    _check_form(method)
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)

    async def answer(message: object, context: object) -> Any:
        note(path(method), context)
        return response()

    async def stream(message: object, context: object) -> Any:
        note(path(method), context)
        yield response()

    forms: Any = {
        "request_deserializer": request.FromString,
        "response_serializer": response.SerializeToString,
    }
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, **forms)
    if method.client_streaming:
        return grpc.stream_unary_rpc_method_handler(answer, **forms)
    return grpc.unary_unary_rpc_method_handler(answer, **forms)


async def call(channel: grpc.aio.Channel, method: MethodDescriptor, **options: Any) -> None:
    """Calls a method with an empty request, or a stream of one."""
    _check_form(method)
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    unary: Any = channel.stream_unary if method.client_streaming else channel.unary_unary
    make: Any = channel.unary_stream if method.server_streaming else unary
    made = make(path(method), request.SerializeToString, response.FromString)
    answer = made(iter([request()]) if method.client_streaming else request(), timeout=20, **options)
    if method.server_streaming:
        async for _ in answer:
            pass
    else:
        await answer


def _check_form(method: MethodDescriptor) -> None:
    both = method.client_streaming and method.server_streaming
    assert not both, "no contract has a method with streams in both directions"
