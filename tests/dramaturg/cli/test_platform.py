from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, version
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from dramaturg.cli import platform
from dramaturg.cli.main import app


def entries(*values: str) -> Callable[..., Sequence[EntryPoint]]:
    found = [EntryPoint("platform", value, platform.COMMANDS) for value in values]
    return lambda group: found


def test_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["version"])
    assert done.exit_code == 0
    assert done.stdout == f"dramaturg {version('dramaturg')}\n"


@pytest.mark.parametrize(
    "command",
    [[], ["evaluate"], ["evaluate", "scripts"], ["serve"], ["up"], ["judges"], ["convert", "coscript"]],
)
def test_every_command_explains_itself(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.stdout


def test_serve_names_the_services_that_there_are() -> None:
    done = CliRunner().invoke(app, ["serve", "poet"])
    assert done.exit_code == 2
    assert "commonsense" in done.stderr


def test_serve_refuses_a_backend_that_the_service_has_not() -> None:
    done = CliRunner().invoke(app, ["serve", "critic", "--backend", "oracle"])
    assert done.exit_code == 2
    assert "offline" in done.stderr


@pytest.mark.parametrize("values", [(), ("absent_services.launch.commands:app",)])
@pytest.mark.parametrize("command", ["up", "serve"])
def test_without_the_services_their_commands_say_so(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], command: str
) -> None:
    monkeypatch.setattr(platform, "entry_points", entries(*values))
    commands = typer.Typer()
    commands.add_typer(platform.platform_commands())
    done = CliRunner().invoke(commands, [command])
    assert done.exit_code == 2
    assert "a clone of the repository" in done.stderr


async def test_without_the_services_a_gateway_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "entry_points", entries("absent_services.launch.commands:app"))
    with pytest.raises(platform.UsageError, match="--target"):
        async with platform.gateway(None):
            pass
    async with platform.gateway("elsewhere:1") as target:
        assert target == "elsewhere:1"


def test_a_fault_inside_the_services_is_not_taken_for_their_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    broken = SimpleNamespace(load=load, module="gateway.launch.commands")
    monkeypatch.setattr(platform, "entry_points", lambda group: [broken])
    with pytest.raises(ModuleNotFoundError, match="numpy"):
        platform.platform_commands()


def test_settings_that_cannot_be_used_are_a_message_and_exit_code_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAMATURG_GATEWAY_CALLS_PER_JUDGE", "none")
    done = CliRunner().invoke(app, ["judges"])
    assert done.exit_code == 2
    assert "calls_per_judge" in done.stderr
    assert "Traceback" not in done.stderr
