"""How services find each other in one process."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeHealth, JudgeRegistration
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.service.installed import UnknownServiceError, backends, find_app, service_names, settings_type
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, Settings
from dramaturg.testing import serve
from gateway.app import App as Gateway
from gateway.launch.platform import NO_MODEL, Overview, Platform, local_platform
from gateway.runs.settings import RunsSettings
from tests.support.gateway import Fake
from tests.support.ports import free_port

AGENTS = ("synthesize", "critic", "execute", "commonsense")
SCRIPT_ROLES = (*AGENTS, "script-judge")


async def judges(overviews: list[Overview]) -> dict[tuple[str, str], tuple[bool, str]]:
    async with local_platform(overviews.append) as target, DramaturgClient(target) as client:
        return {
            (judge.role, judge.name): (judge.default_for_role, JudgeHealth.Name(judge.health))
            for judge in await client.list_judges()
            if judge.role in SCRIPT_ROLES
        }


async def test_without_a_model_the_offline_judges_alone_serve_and_it_is_said() -> None:
    overviews: list[Overview] = []
    found = await judges(overviews)
    assert {name: health for name, (_, health) in found.items()} == {
        **{(role, "offline"): "JUDGE_HEALTH_SERVING" for role in AGENTS},
        **{(role, "llm"): "JUDGE_HEALTH_NOT_SERVING" for role in SCRIPT_ROLES},
    }
    defaults = {name for name, (default, _) in found.items() if default}
    assert defaults == {*((role, "offline") for role in AGENTS), ("script-judge", "llm")}
    assert overviews[0].notice == NO_MODEL


async def test_with_a_model_the_judges_that_ask_it_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("MODEL", "m")
    overviews: list[Overview] = []
    found = await judges(overviews)
    assert {name for name, (default, _) in found.items() if default} == {
        (role, "llm") for role in SCRIPT_ROLES
    }
    # A check of the configuration does not call the provider.
    assert {health for name, (_, health) in found.items()} == {"JUDGE_HEALTH_SERVING"}
    assert not overviews[0].notice


async def test_a_configured_judge_joins_and_its_default_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(Fake("critic").contract()) as server:
        file = tmp_path / "dramaturg.toml"
        file.write_text(
            '[[gateway.judges]]\nrole = "critic"\nname = "terse"\ndefault = true\n'
            f'target = "{server.target}"\n'
        )
        monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
        found = await judges([])
    critics = {name: default for (role, name), (default, _) in found.items() if role == "critic"}
    assert critics == {"terse": True, "llm": False, "offline": False}
    assert found["execute", "offline"] == (True, "JUDGE_HEALTH_SERVING")


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1/v1"])
async def test_a_judge_under_the_name_of_a_built_in_one_keeps_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    name = "offline" if url is None else "llm"
    async with serve(Fake("critic").contract()) as server:
        file = tmp_path / "dramaturg.toml"
        file.write_text(f'[[gateway.judges]]\nrole = "critic"\nname = "{name}"\ntarget = "{server.target}"\n')
        monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
        if url is not None:
            monkeypatch.setenv("OPENAI_BASE_URL", url)
            monkeypatch.setenv("MODEL", "m")
        async with local_platform(roles=["critic"]) as target, DramaturgClient(target) as client:
            critics = {judge.name: judge for judge in await client.list_judges("critic")}
    assert {judge.name for judge in critics.values() if judge.default_for_role} == {name}
    assert critics[name].target == server.target


async def test_the_port_for_probes_is_the_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are many servers in the process, and only one can have it."""
    monkeypatch.setenv(ServerSettings.variable("probe_port"), str(free_port()))
    async with local_platform(roles=["critic", "graph"]) as target, DramaturgClient(target) as client:
        assert await client.list_judges()


def test_every_service_is_found_by_name_with_its_settings() -> None:
    for name in (*SCRIPT_ROLES, "generation", "embedding", "gateway"):
        assert name in service_names()
        assert issubclass(settings_type(find_app(name)), Settings)
        assert settings_type(find_app(name)).section == name


def test_backends_are_those_that_the_settings_declare() -> None:
    assert set(backends(settings_type(find_app("critic")))) == {"llm", "offline"}
    assert backends(settings_type(find_app("embedding"))) == ()


def test_an_unknown_service_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownServiceError, match="critic"):
        find_app("poet")


def test_a_gateway_without_runs_imports_no_store_and_no_service() -> None:
    code = "import sys, gateway.launch.platform; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"dbos", "numpy", "openai", "scipy", "services", "sqlalchemy"} & {*done.stdout.split()}


def test_the_platform_serves_http_and_a_gateway_alone_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServerSettings.loopback()
    assert len(Platform().fronts(settings)) == 1
    assert not Gateway().fronts(settings)
    monkeypatch.setenv("DRAMATURG_GATEWAY_HTTP__PORT", "50123")
    assert len(Platform().fronts(settings)) == len(Gateway().fronts(settings)) == 1
    monkeypatch.setenv("DRAMATURG_GATEWAY_HTTP__PORT", "0")
    assert not Platform().fronts(settings)
    assert not Gateway().fronts(settings)


def test_a_port_of_http_in_use_is_told_unless_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def announced(**options: Any) -> tuple[str, bool, bool]:
        seen: list[tuple[str, bool, bool]] = []
        platform = Platform(announce_http=lambda *event: seen.append(event), **options)
        settings = ServerSettings(port=free_port())
        async with Server([Fake("critic").contract()], settings, fronts=platform.fronts(settings)):
            return seen[0]

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("gateway.http.server.DEFAULT_PORT", taken.getsockname()[1])
        assert asyncio.run(announced())[1:] == (True, True)
        chosen = free_port()
        assert asyncio.run(announced(http_port=chosen)) == (f"http://127.0.0.1:{chosen}", True, False)


@pytest.mark.parametrize(
    ("setting", "is_permitted"), [(None, True), ('["judge.example:443"]', False)], ids=["absent", "set"]
)
async def test_judges_of_this_machine_may_be_registered_unless_addresses_are_set(
    setting: str | None, is_permitted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is not None:
        monkeypatch.setenv("DRAMATURG_GATEWAY_JUDGE_TARGETS", setting)
    monkeypatch.setenv("DRAMATURG_GATEWAY_HTTP__PORT", "0")
    platform = Platform(["critic"], runs=RunsSettings(enabled=True, url=f"sqlite:///{tmp_path / 'runs'}"))
    settings = ServerSettings.loopback()
    platform.fronts(settings)
    async with (
        platform.open() as contracts,
        Server(contracts, settings) as server,
        DramaturgClient(server.target) as client,
    ):
        registration = JudgeRegistration(role="critic", name="terse", target=f"localhost:{free_port()}")
        if is_permitted:
            await client.register_judge(registration)
            assert "terse" in {judge.name for judge in await client.list_judges()}
        else:
            with pytest.raises(ServiceError, match="judge_targets"):
                await client.register_judge(registration)
