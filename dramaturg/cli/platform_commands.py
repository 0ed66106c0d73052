"""Commands of the services, which a wheel does not contain. They are found through entry points."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import typer

from dramaturg.cli.lazy_group import LazyCommand

PLATFORM = "dramaturg.commands"
"""The group of the entry point of the module that has ``up``, ``serve`` and ``local_platform``."""
NO_PLATFORM = (
    "The services are not installed: they come with a clone of the repository (pip install -e '.[platform]') "
    "or an image. To use a gateway that runs elsewhere, name it with --target HOST:PORT."
)


class PlatformCommand(LazyCommand):
    """A command of the services.

    Where the services are not installed, the command prints a message and ends with exit code 2.

    Args:
        name: The name of the command.
        group: The group of the entry point.
        help: The first paragraph of the command's help.
        absent: The message where the services are not installed.
    """

    def __init__(self, name: str, group: str, help: str, absent: str) -> None:  # noqa: A002
        super().__init__(name, group, help)
        self._absent = absent

    def load_app(self) -> typer.Typer:
        """Imports the module that the entry point names and returns its ``app``."""
        module = platform_module(self._source)
        app: typer.Typer = typer.Typer() if module is None else module.app
        if module is None:
            # The answer is the same with any arguments.
            anything = {"ignore_unknown_options": True, "allow_extra_args": True}
            app.command(self.name, help=self.help, context_settings=anything)(self._fail)
        return app

    def _fail(self) -> None:
        typer.echo(self._absent, err=True)
        raise typer.Exit(2)


def platform_module(group: str) -> ModuleType | None:
    """The module that an entry point of the services names. None: the services are not installed.

    Args:
        group: The group of the entry point.

    Raises:
        ModuleNotFoundError: The services are installed, and a module that they need is not.
    """
    from importlib.metadata import entry_points  # slow to import, and most commands do not need it

    for entry in entry_points(group=group):
        try:
            return import_module(entry.module)
        except ModuleNotFoundError as error:
            if error.name != entry.module.split(".")[0]:
                raise
    return None
