"""Command groups whose members are imported when they are used, also from parts outside the wheel."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

MORE = "More options"
"""The heading of options that only --help-all shows."""


class LazyCommand(TyperCommand):
    """Stands for a command or a group in the help of its parent, and imports it when it is run.

    Args:
        name: The name of the command.
        source: The module whose ``app`` has the command; or "module:function", the command's function.
        help: The first paragraph of the command's help.
        group: Whether ``app`` is the command itself, a group. Otherwise ``app`` contains the command.
        panel: The heading that it stands below in the help of its parent. None: "Commands".
    """

    def __init__(
        self,
        name: str,
        source: str,
        help: str,  # noqa: A002
        *,
        group: bool = False,
        panel: str | None = None,
    ) -> None:
        super().__init__(name, help=help, rich_help_panel=panel)
        self._source = source
        self._group = group

    def load(self) -> Any:
        """Imports the command.

        Raises:
            LookupError: The module's ``app`` does not have the command.
        """
        return self.find_in(self.load_app(), group=self._group)

    def find_in(self, app: typer.Typer, *, group: bool) -> Any:
        """The command as a member of a group.

        Args:
            app: Has the command.
            group: Whether ``app`` is the command itself, a group.

        Raises:
            LookupError: ``app`` does not have the command.
        """
        assert self.name is not None
        parent = typer.Typer(cls=LazyGroup, add_completion=False)
        parent.callback()(_no_operation)
        parent.add_typer(app, name=self.name if group else None)
        command: Any = typer.main.get_command(parent)
        try:
            found = command.commands[self.name]
        except KeyError:
            raise LookupError(f"{self._source}:app has no command {self.name!r}") from None
        _fold(found)
        return found

    def load_app(self) -> typer.Typer:
        """Imports the module and returns its ``app``, or one that has the function as its command."""
        module, _, function = self._source.partition(":")
        app: typer.Typer = typer.Typer() if function else import_module(module).app
        if function:
            app.command(self.name)(getattr(import_module(module), function))
        return app


class LazyGroup(TyperGroup):
    """A group that may have members of type ``LazyCommand``.

    The paragraphs of the help of its members are reflowed, so that they fit the terminal however their lines
    are broken in the source.

    Attributes:
        members: The lazy members. They are listed after the group's own commands.
    """

    members: Sequence[LazyCommand] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for member in self.members:
            self.add_command(member)
        _reflow(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Finds the command that the arguments name, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


def reflowed(text: str) -> str:
    """The same paragraphs, each in one line. Indented text, such as an example, stays as it is."""
    return "\n\n".join(
        paragraph if paragraph.startswith(" ") else " ".join(paragraph.split())
        for paragraph in text.split("\n\n")
    )


def _reflow(command: Any) -> None:
    if command.help:
        command.help = reflowed(command.help)
    if isinstance(command, TyperGroup):
        for member in command.commands.values():
            _reflow(member)


def _fold(command: Any) -> None:
    """Hides rare options of a command and of its members, and adds --help-all, which shows them."""
    for member in getattr(command, "commands", {}).values():
        if not isinstance(member, LazyCommand):
            _fold(member)
    rare = [one for one in command.params if getattr(one, "rich_help_panel", None) == MORE]
    if not rare:
        return
    for one in rare:
        one.hidden = True

    def show(context: typer.Context, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            for one in rare:
                one.hidden = False
            typer.echo(context.get_help(), color=context.color)
            raise typer.Exit

    # Typer makes the option: its constructor of options is no public one.
    source = typer.Typer(add_completion=False)
    option: Any = typer.Option(
        False,
        "--help-all",
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show all options, and exit.",
    )

    @source.command()
    def _(help_all: bool = option) -> None:
        del help_all

    made: Any = typer.main.get_command(source)
    command.params += made.params


def _no_operation() -> None:
    pass


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
