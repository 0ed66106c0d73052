"""Commands of parts that the wheel does not contain. They are found through entry points."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import typer

from dramaturg.cli.lazy_group import LazyCommand

PLATFORM = "dramaturg.commands"
"""The group of the entry point of the module that has ``up``, ``serve`` and ``local_platform``."""
NO_PLATFORM = (
    "The services are not installed: they come with a clone of the repository (pip install -e '.[platform]') "
    "or an image. To use a gateway that runs elsewhere, name it with --target HOST:PORT."
)
RESEARCH = "dramaturg.commands.research"
"""The group of the entry points of ``dramaturg-research``. Their names are those of the commands."""
NO_RESEARCH = (
    "This command comes with the package dramaturg-research: install it by pip install dramaturg-research, "
    "or in a clone of the repository by pip install -e ./research."
)


class ExternalCommand(LazyCommand):
    """A command, or a group of commands, of another distribution.

    Where the distribution is not installed, the command prints a message and ends with exit code 2.

    Args:
        name: The name of the command.
        source: The group of the entry point.
        help: The first paragraph of the command's help.
        absent: The message where the distribution is not installed.
        entry: The name of the entry point. Empty: the group has one.
        group: Whether the ``app`` of the module is the command itself, a group.
        panel: The heading that it stands below in the help of its parent. None: "Commands".
    """

    def __init__(
        self,
        name: str,
        source: str,
        help: str,  # noqa: A002
        absent: str,
        *,
        entry: str = "",
        group: bool = False,
        panel: str | None = None,
    ) -> None:
        super().__init__(name, source, help, group=group, panel=panel)
        self._absent = absent
        self._entry = entry

    def load(self) -> Any:
        """Imports the module that the entry point names and returns the command of its ``app``."""
        module = external_module(self._source, self._entry)
        if module is not None:
            return self.find_in(module.app, group=self._group)
        app = typer.Typer()
        # The answer is the same with any arguments.
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(self.name, help=self.help, context_settings=anything)(self._fail)
        return self.find_in(app, group=False)

    def _fail(self) -> None:
        typer.echo(self._absent, err=True)
        raise typer.Exit(2)


def external_module(group: str, name: str = "") -> ModuleType | None:
    """The module that an entry point names. None: its distribution is not installed.

    Args:
        group: The group of the entry point.
        name: The name of the entry point. Empty: the group has one.

    Raises:
        ModuleNotFoundError: The distribution is installed, and a module that it needs is not.
    """
    from importlib.metadata import entry_points  # slow to import, and most commands do not need it

    for entry in entry_points(group=group):
        if name and entry.name != name:
            continue
        try:
            return import_module(entry.module)
        except ModuleNotFoundError as error:
            # Commands of dramaturg-research that work on a service need the package of the services too.
            if error.name not in {entry.module.split(".")[0], "services"}:
                raise
    return None
