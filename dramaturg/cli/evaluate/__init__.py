"""``dramaturg eval``: a file of any kind. Each kind is a command; ``--kind`` or the first row names it."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import typer

from dramaturg.cli.lazy_group import LazyCommand, LazyGroup
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, printable
from dramaturg.datasets import Format
from dramaturg.datasets.source import STANDARD_INPUT
from dramaturg.kinds import FILE_KINDS

__all__ = ["app"]

_KIND, _FORMAT, _BY_REFERENCE = "--kind", "--format", "--by-reference"
_HELP = ("--help", "-h")


class _Kinds(LazyGroup):
    members = tuple(
        LazyCommand(kind.name, f"dramaturg.cli.evaluate.{kind.name}:{kind.name}", kind.help, panel="Kinds")
        for kind in FILE_KINDS.values()
    )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the kind in front of the arguments: that of ``--kind``, else that of the file."""
        kind, args = _named(args)
        if STANDARD_INPUT in args:
            _keep_standard_input()
        if kind is not None and kind not in FILE_KINDS:
            ctx.fail(f"--kind {kind!r}: is none of {', '.join(FILE_KINDS)}")
        if kind is None and args and args[0] not in _HELP:
            kind = self._inferred(ctx, args)
        parsed: list[str] = super().parse_args(ctx, args if kind is None else [kind, *args])
        return parsed

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Finds the command of the kind. In its help it is called as a user calls it."""
        name, command, rest = super().resolve_command(ctx, args)
        return f"{_KIND} {name}", command, rest

    def _inferred(self, ctx: Any, args: Sequence[str]) -> str | None:
        commands = [self.resolve_command(ctx, [name])[1] for name in FILE_KINDS]
        valued = {
            option
            for command in commands
            for one in command.params
            if one.param_type_name == "option" and not one.is_flag
            for option in one.opts
        }
        if _BY_REFERENCE in args:
            ctx.fail(f"{_BY_REFERENCE}: name the kind with {_KIND}: the gateway reads the rows")
        file, given = _file_of(args, valued)
        if file is None and not any(one in _HELP for one in args):
            ctx.fail("Missing argument 'FILE'.")
        if file is None:
            return None
        kind, why = ("texts", "") if "--text" in given else infer_kind(file, given.get(_FORMAT))
        if why:  # a table is described by its kind
            echo(printable(f"{file}: {kind}, {why}"), err=True)
        return kind


def _named(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of ``--kind``, and the other arguments."""
    rest, kind, given = [], None, iter(args)
    for one in given:
        if one == _KIND:
            kind = next(given, "")
        elif one.startswith(f"{_KIND}="):
            kind = one.partition("=")[2]
        else:
            rest.append(one)
    return kind, rest


def _file_of(args: Sequence[str], valued: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """The first argument that is neither an option nor the value of one, and the values of options."""
    values: dict[str, str] = {}
    file, given = None, iter(args)
    for one in given:
        name, equals, value = one.partition("=")
        if one == "--":
            return file or next(given, None), values
        if equals and name in valued:
            values[name] = value
        elif one in valued:
            values[one] = next(given, "")
        elif one == STANDARD_INPUT or not one.startswith("-"):
            file = file or one
    return file, values


def infer_kind(file: str, form: str | None = None) -> tuple[str, str]:
    """``dramaturg.formats.evaluated_file.infer_kind`` with the value of ``--format``.

    Raises:
        typer.Exit: 2 with a message where the file cannot be read, or its first row fits no kind.
    """
    from dramaturg.formats import evaluated_file

    try:
        format_ = Format(form) if form in [one.value for one in Format] else None
        return evaluated_file.infer_kind(file, format_)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    except evaluated_file.FileError as error:
        named = f"; name the column of texts with --text: {', '.join(error.columns)}"
        fail(f"{file}: {error}{named if error.columns else ''}")


def _keep_standard_input() -> None:
    """Keeps standard input in a temporary file that is read in its place."""
    kept = tempfile.TemporaryFile()  # noqa: SIM115 - it is open until the command ends
    if (source := getattr(sys.stdin, "buffer", None)) is not None:
        shutil.copyfileobj(source, kept)
    kept.seek(0)
    sys.stdin = io.TextIOWrapper(kept)


app = typer.Typer(
    cls=_Kinds,
    no_args_is_help=True,
    subcommand_metavar="FILE",
    help="""Evaluates what language models wrote: any texts by a rubric, or one of the kinds below.

    FILE is JSON Lines, JSON, CSV, TSV, Parquet or XLSX; - reads standard input. The options of a kind:
    "dramaturg eval --kind KIND --help".

    For example:

        dramaturg eval answers.csv --criteria rubric.toml

        dramaturg eval tasks.jsonl --judge-model gpt-4o -o out/tasks
    """,
)


@app.callback()
def _eval(
    kind: Annotated[
        str,
        typer.Option(
            _KIND,
            metavar="KIND",
            help="The kind of the rows. Default: the one whose fields the first row has.",
        ),
    ] = "",
) -> None:
    del kind  # ``_Kinds.parse_args`` has read it
