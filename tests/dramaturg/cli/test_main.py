"""The command line as a whole: its commands, their help, and what is imported."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from dramaturg.cli.lazy_group import LazyCommand
from dramaturg.cli.main import app

SHARED = {"--format", "--limit", "--target", "--out", "--json", "--concurrency", "--timeout"}
HEAVY = (
    "aiohttp",
    "dbos",
    "google.protobuf",
    "grpc",
    "jinja2",
    "numpy",
    "openai",
    "pydantic_settings",
    "scipy",
)


def commands(command: Any, name: str = "dramaturg") -> Iterator[tuple[str, Any]]:
    loaded = command.load() if isinstance(command, LazyCommand) else command
    yield name, loaded
    for member, found in getattr(loaded, "commands", {}).items():
        yield from commands(found, f"{name} {member}")


ALL = dict(commands(typer.main.get_command(app)))


def lazy_members() -> Iterator[Any]:
    for name, command in ALL.items():
        for member in getattr(command, "members", ()):
            yield pytest.param(member, ALL[f"{name} {member.name}"], id=f"{name} {member.name}")


def imported_by(*arguments: str) -> set[str]:
    code = "import runpy, sys\ntry:\n    {run}\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    run = "runpy.run_module('dramaturg', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code.format(run=run), *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.stdout == f"dramaturg {version('dramaturg')}\n"


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_and_version_import_no_command(arguments: tuple[str, ...]) -> None:
    imported = imported_by(*arguments)
    assert not imported.intersection(HEAVY)
    ours = {name for name in imported if name.startswith("dramaturg.cli.")}
    assert ours == {"dramaturg.cli.main", "dramaturg.cli.lazy_group"}


def test_evaluate_imports_no_other_command() -> None:
    imported = imported_by("eval", "--help")
    groups = {one._source.partition(":")[0] for one in ALL["dramaturg"].members} - {"dramaturg.cli.evaluate"}
    assert "dramaturg.cli.labels" in groups
    assert not imported & groups
    assert not imported & {"dramaturg_research", "gateway", "numpy", "scipy"}


@pytest.mark.parametrize(("member", "command"), [*lazy_members()])
def test_the_help_of_a_lazy_command_is_that_of_the_command(member: LazyCommand, command: Any) -> None:
    assert member.help == command.help.split("\n\n")[0]


@pytest.mark.parametrize("name", sorted(ALL))
def test_paragraphs_fit_any_terminal(name: str) -> None:
    for paragraph in (ALL[name].help or "").split("\n\n"):
        assert paragraph.startswith(" ") or "\n" not in paragraph.strip()


@pytest.mark.parametrize("name", ["research simulate", "research scenarios write", "judges compare"])
def test_every_evaluation_has_the_same_options(name: str) -> None:
    options = {option: one for one in ALL[f"dramaturg {name}"].params for option in one.opts}
    assert set(options) >= SHARED
    model = {option: one for one in ALL["dramaturg eval"].params for option in one.opts}
    for option in SHARED - {"--timeout"}:
        assert (options[option].help, options[option].default) == (model[option].help, model[option].default)


def options_of(command: Any) -> list[Any]:
    """The options of a command without those that show its help."""
    helps = {"help", "help_all"}
    return [one for one in command.params if one.param_type_name == "option" and one.name not in helps]


def test_every_command_finds_its_gateway_by_one_rule() -> None:
    for name, command in ALL.items():
        for one in options_of(command):
            if "--target" in one.opts:
                assert one.envvar == "DRAMATURG_TARGET", name
                assert "Default: DRAMATURG_TARGET, else " in one.help, name


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names that code uses, those of arguments that it passes included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
        elif isinstance(constant, tuple):
            yield from (one for one in constant if isinstance(one, str))


def tells_next(function: Any, seen: set[Any]) -> bool:
    """Whether a function, or one that it calls by its name, writes the next command."""
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType) or function in seen:
        return False
    seen.add(function)
    names = set(names_in(function.__code__))
    called = (function.__globals__.get(name) for name in names)
    # What the commands of figures have in common takes the next command as "then".
    return bool(names & {"tell_next", "then"}) or any(tells_next(one, seen) for one in called)


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_command_says_what_to_do_next(name: str) -> None:
    # up and serve go on; eval calls the command of a kind, which tests of each kind run.
    command = ALL[name]
    is_group = hasattr(command, "commands") and not command.invoke_without_command
    if not is_group and name not in {
        "dramaturg up",
        "dramaturg serve",
        "dramaturg eval",
    }:
        assert tells_next(command.callback, set())


def test_the_command_line_is_small() -> None:
    product = {name: one for name, one in ALL.items() if not name.startswith("dramaturg research")}
    entries = [name for name, one in ALL["dramaturg"].commands.items() if not one.hidden]
    ran = [one for one in product.values() if not hasattr(one, "commands") or one.invoke_without_command]
    assert len(entries) <= 13
    assert len(ran) <= 60
    assert sum(len(options_of(one)) for one in product.values()) <= 350


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_help_is_short_and_cuts_no_name(name: str) -> None:
    command, words = ALL[name], name.split()[1:]
    shown = [one for one in options_of(command) if not one.hidden]
    assert len(shown) <= 14 - 1 - bool(len(shown) < len(options_of(command)))
    pages = ["--help", "--help-all"] if len(shown) < len(options_of(command)) else ["--help"]
    for page in pages:
        done = CliRunner().invoke(app, [*words, page], env={"COLUMNS": "80"})
        printed = done.stdout
        assert (done.exit_code, "Usage" in printed) == (0, True)
        assert "…" not in printed
        for one in options_of(command) if page == "--help-all" else shown:
            assert all(option in printed for option in [*one.opts, *one.secondary_opts])


def test_an_evaluation_of_a_kind_explains_itself() -> None:
    done = CliRunner().invoke(app, ["eval", "--kind", "scripts", "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.stdout


def test_the_help_groups_its_entries_by_what_they_are_for() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    headings = ["Start", "Evaluate", "Read", "Operate", "People", "Research"]
    places = [shown.index(f"─ {heading} ─") for heading in headings]
    assert places == sorted(places)
    entries = [name for name, one in ALL["dramaturg"].commands.items() if not one.hidden]
    assert all(name in shown for name in entries)


def test_an_unknown_command_is_wrong_usage() -> None:
    done = CliRunner().invoke(app, ["evall"])
    assert done.exit_code == 2
    assert "'eval'" in done.stderr


INTERRUPTED_WRITER = """
import signal, sys
import dramaturg.cli.main
from dramaturg.__main__ import main

def interrupt(*_):
    sys.stderr.write(".")
    sys.stderr.flush()

def write():
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    sys.stdout.write("x" * 1_000_000 + "\\n")
    sys.stdout.buffer.write(b"y" * 1_000_000 + b"\\n")
    sys.stdout.buffer.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)

dramaturg.cli.main.main = write
main()
"""


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_signals_cut_no_output_to_a_full_pipe(unbuffered: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_WRITER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # A write that a signal cut without a loss goes on, and is interrupted again.
        assert process.stderr.read(3) == b"..."
        assert len(process.stdout.read()) == 2_000_002
    assert process.returncode == 0
