"""The installed services, and the interface of a service to the code that starts it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, cast, get_args, get_type_hints

from dramaturg.service.contract import Contract
from dramaturg.service.settings import Settings


class App(Protocol):
    """A service that can be started, in a process alone or with others.

    By convention a service's ``app.py`` has a class ``App``: without arguments it reads its settings from the
    environment, with ``settings=`` it takes them as given.

    A service whose callers are outside of the platform has the attribute ``public = True``: it requires
    authentication unless it listens on loopback alone. Other services run under the batch policy of Linux
    (sched(7)), which takes less processor time.

    A service that is also served over other protocols has a method ``fronts``, which takes the settings of
    the server and returns the ``Front`` of each.

    A service with tables in a database has a static method ``migrate``, which creates and upgrades them
    without starting it (``dramaturg.service.migration``).
    """

    @property
    def name(self) -> str:
        """The name under which the service is started, for example "critic"."""

    def open(self) -> AbstractAsyncContextManager[Sequence[Contract]]:
        """Opens the resources of the service, yields its contracts, and closes the resources."""


GROUP = "dramaturg.services"
"""The group of entry points whose names are services and whose objects are their ``App`` classes or
``JudgeSpec`` objects.
"""


class UnknownServiceError(LookupError):
    """No service has the name; the message lists the installed ones."""


class AppClass(Protocol):
    """A service's ``App`` class (see ``App``), or ``dramaturg.judge.spec.JudgeSpec``."""

    def __call__(self, *, settings: Settings | None = None) -> App:
        """Creates the service; without settings it reads those of the environment."""


def service_names() -> Sequence[str]:
    """The names of all installed services, sorted."""
    return sorted(_services())


def sections() -> Collection[str]:
    """The sections of the settings of all installed services, without importing them."""
    return {*service_names(), "quotas", "runs"}


def find_app(name: str) -> AppClass:
    """Finds a service's ``App`` class or ``JudgeSpec`` by the service's name.

    Raises:
        UnknownServiceError: No such service is installed.
        ImportError: A package that the service needs is not installed.
    """
    found = _services().get(name)
    if found is None:
        raise UnknownServiceError(f"{name!r} is not a service; the services are {', '.join(service_names())}")
    app: AppClass = found.load()
    return app


# Each look at all installed distributions takes some 20 ms.
@cache
def _services() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def settings_type(app: AppClass, parameter: str = "settings") -> type[Settings]:
    """The class of a service's settings, as its ``JudgeSpec`` or its constructor declares it.

    Args:
        app: The service's class or specification.
        parameter: The parameter of the constructor.

    Raises:
        TypeError: The constructor has no such parameter for settings.
    """
    declared: Any = getattr(app, "settings_type", None)
    if declared is not None:
        return cast("type[Settings]", declared)
    hint: Any = get_type_hints(getattr(app, "__init__")).get(parameter)  # noqa: B009
    for choice in (hint, *get_args(hint)):
        if isinstance(choice, type) and issubclass(choice, Settings):
            return choice
    raise TypeError(f"{app!r} has no settings {parameter!r}")


def backends(settings: type[Settings]) -> Sequence[str]:
    """The backends of a service. Empty: it has none to select."""
    field = settings.model_fields.get("backend")
    return () if field is None else get_args(field.annotation)
