"""A gateway with given judges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dramaturg.service.contract import Contract
from dramaturg.service.installed import AppClass, UnknownServiceError, find_app, settings_type
from dramaturg.service.server import Server
from dramaturg.testing.servers import serve

_SHORT = {"drain_grace_seconds": 0.2}  # a test that ends does not need the calls in progress


class PlatformMissingError(ImportError):
    """The gateway is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "a gateway needs the services, which the wheel does not contain: install them from a clone of "
            "the repository (pip install -e '.[platform]')"
        )


@dataclass(frozen=True)
class RegisteredJudge:
    """A judge of a gateway."""

    role: str
    """The role that it serves, such as "critic"."""
    judge: Contract | str
    """What it is, served together with the gateway; or the address of a running judge."""
    name: str = "fake"
    """Its name, unique within the role."""
    default: bool = False
    """Whether it serves the role where a request names no judge. The only judge of a role always does."""


@asynccontextmanager
async def serve_gateway(
    *judges: RegisteredJudge, runs: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Server]:
    """Serves a gateway and its judges on this machine and yields the gateway's server.

    ``in_thread`` serves it for tests that are not asynchronous.

    Args:
        judges: The judges.
        runs: Fields of the section ``runs`` of the settings. None: it has no runs.
        settings: Fields of the section ``gateway``.

    Raises:
        PlatformMissingError: The extra ``platform`` is not installed.
    """
    app: Any = _gateway_app()
    async with AsyncExitStack() as stack:
        entries = []
        for one in judges:
            target = one.judge
            if isinstance(target, Contract):
                target = (await stack.enter_async_context(serve(target, **_SHORT))).target
            entries.append({"role": one.role, "name": one.name, "target": target, "default": one.default})
        made = app(
            settings=settings_type(app)(**{"judges": entries, "identity_timeout_seconds": 3, **settings}),
            runs=settings_type(app, "runs").model_validate({"enabled": False} if runs is None else runs),
        )
        contracts = await stack.enter_async_context(made.open())
        yield await stack.enter_async_context(serve(*contracts, **_SHORT))


def _gateway_app() -> AppClass:
    try:
        return find_app("gateway")
    except UnknownServiceError:
        raise PlatformMissingError from None
    except ModuleNotFoundError as error:
        raise PlatformMissingError from error
