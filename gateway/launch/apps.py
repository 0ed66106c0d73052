"""Finds services by name, and what can be configured of them, without importing any by its path."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol, get_args, get_type_hints

from dramaturg.service.app import App
from dramaturg.service.settings import Settings

GROUP = "dramaturg.services"
"""The entry points whose names are services and whose objects are their ``App`` classes."""


class UnknownServiceError(LookupError):
    """No service has the name; the message lists those that there are."""


class AppClass(Protocol):
    """A service's ``App`` class (see ``dramaturg.service.app.App``)."""

    def __call__(self, *, settings: Settings | None = None) -> App:
        """Makes the service; without settings it reads those of the environment."""


def service_names() -> Sequence[str]:
    """The names of all services that are installed, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find_app(name: str) -> AppClass:
    """Finds a service's ``App`` class by the service's name.

    Raises:
        UnknownServiceError: No such service is installed.
    """
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise UnknownServiceError(f"{name!r} is no service; there are {', '.join(service_names())}")
    app: AppClass = found.load()
    return app


def settings_type(app: AppClass) -> type[Settings]:
    """The class of a service's settings, as its constructor declares it.

    Raises:
        TypeError: The constructor takes no settings.
    """
    hint = get_type_hints(getattr(app, "__init__")).get("settings")  # noqa: B009
    for choice in (hint, *get_args(hint)):
        if isinstance(choice, type) and issubclass(choice, Settings):
            return choice
    raise TypeError(f"{app!r} takes no settings")


def backends(settings: type[Settings]) -> Sequence[str]:
    """The backends that a service can be started with. Empty: it has just one way to work."""
    field = settings.model_fields.get("backend")
    return () if field is None else get_args(field.annotation)
