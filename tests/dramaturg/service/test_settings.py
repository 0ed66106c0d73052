from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, ValidationError

from dramaturg.service.settings import (
    Address,
    ChannelSettings,
    ServerSettings,
    Settings,
    SettingsError,
    check_names,
    explain,
)


class Provider(BaseModel):
    url: str = ""
    key: str = ""


class JudgeSettings(Settings):
    section: ClassVar[str] = "script-judge"

    model: str = "default"
    """The model."""
    retries: int = 1
    """How often."""
    provider: Provider = Provider()
    """Where."""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "dramaturg.toml"
    monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
    return file


def test_sources_from_weak_to_strong(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('[script-judge]\nmodel = "file"\nretries = 2\n')
    assert JudgeSettings().retries == 2
    assert JudgeSettings().model == "file"
    monkeypatch.setenv("DRAMATURG_SCRIPT_JUDGE_MODEL", "variable")
    assert JudgeSettings().model == "variable"
    assert JudgeSettings(model="argument").model == "argument"


def test_nested_settings_merge(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('[script-judge.provider]\nurl = "http://file"\nkey = "file"\n')
    monkeypatch.setenv("DRAMATURG_SCRIPT_JUDGE_PROVIDER__KEY", "variable")
    assert JudgeSettings().provider == Provider(url="http://file", key="variable")


def test_an_unknown_key_is_named(config: Path) -> None:
    config.write_text('[script-judge]\nmodle = "x"\n')
    with pytest.raises(ValidationError) as raised:
        JudgeSettings()
    assert "modle: there is no such setting; is model meant?" in explain(raised.value)


def test_other_tables_are_not_looked_at(config: Path) -> None:
    config.write_text('[other]\nmodle = "x"\n')
    assert JudgeSettings().model == "default"


OTHERS = ("critic", "quotas", "script-judge")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[quota.default]\nrequests_per_minute = 1\n", r"\[quota\]; is quotas meant\?"),
        ("[srever]\nport = 1\n", r"\[srever\]; is server meant\?"),
        ("[zzz]\n", r"\[zzz\]$"),
    ],
)
def test_an_unknown_table_is_named_with_the_nearest_one(config: Path, text: str, named: str) -> None:
    config.write_text(text)
    with pytest.raises(SettingsError, match=named):
        check_names(OTHERS)


@pytest.mark.parametrize(
    ("variable", "named"),
    [
        ("DRAMATURG_TARGETT", "DRAMATURG_TARGET"),
        ("DRAMATURG_SCRIPT_JUDGE_MODLE", "DRAMATURG_SCRIPT_JUDGE_MODEL"),
        ("DRAMATURG_SCRIPTJUDGE_PROVIDER__KEY", "DRAMATURG_SCRIPT_JUDGE_PROVIDER"),
        ("dramaturg_servr_port", "DRAMATURG_SERVER_PORT"),
        ("DRAMATURG_SERVER_COLOUR_OF_THE_SKY", ""),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, variable: str, named: str
) -> None:
    monkeypatch.setenv(variable, "x")
    nearest = rf"; is {named} meant\?" if named else "$"
    with pytest.raises(SettingsError, match=variable.upper().partition("__")[0] + nearest):
        check_names(OTHERS)


def test_names_of_this_and_other_processes_and_of_others_pass(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("[quotas.default]\n[critic]\n[server]\n[script-judge]\n")
    for variable, value in {
        "DRAMATURG_SCRIPT_JUDGE_MODEL": "x",
        "DRAMATURG_SCRIPT_JUDGE_PROVIDER__KEY": "x",
        "DRAMATURG_CRITIC_MODEL": "x",
        "DRAMATURG_TARGET": "x",
        "DRAMATURG_TOKEN": "x",
        "DRAMATURG_DATA": "x",
        # Of Kubernetes, for the Services `dramaturg-channel` and `dramaturg`.
        "DRAMATURG_CHANNEL_SERVICE_HOST": "10.0.0.1",
        "DRAMATURG_CHANNEL_PORT": "tcp://10.0.0.1:50051",
        "DRAMATURG_CHANNEL_PORT_50051_TCP_ADDR": "10.0.0.1",
        "DRAMATURG_SERVICE_PORT_GRPC": "50051",
        "DRAMATURG_PORT": "tcp://10.0.0.1:50051",
    }.items():
        monkeypatch.setenv(variable, value)
    check_names(OTHERS)


@pytest.mark.parametrize("content", [b"[script-judge", b"script-judge = 3", b"\xff"])
def test_a_file_that_cannot_be_used_is_named(config: Path, content: bytes) -> None:
    config.write_bytes(content)
    with pytest.raises(SettingsError, match=r"dramaturg\.toml"):
        JudgeSettings()


def test_a_file_that_is_not_there_is_named(config: Path) -> None:
    with pytest.raises(SettingsError, match=r"dramaturg\.toml.*No such file"):
        JudgeSettings()


def test_values_are_kept_out_of_the_explanation() -> None:
    with pytest.raises(ValidationError) as raised:
        JudgeSettings(retries="hunter2")  # type: ignore[arg-type]
    assert "retries" in explain(raised.value)
    assert "hunter2" not in explain(raised.value)
    assert "hunter2" not in str(raised.value)


def test_the_name_of_a_variable() -> None:
    assert JudgeSettings.variable("model") == "DRAMATURG_SCRIPT_JUDGE_MODEL"


@pytest.mark.parametrize(
    "settings",
    [
        {"tls_certificate_file": Path("c")},
        {"tls_client_ca_file": Path("c")},
        {"default_deadline_seconds": 10, "maximum_deadline_seconds": 5},
        {"port": 70_000},
        {"port": 50051, "probe_port": 50051},
        {"log_level": "LOUD"},
    ],
)
def test_server_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ServerSettings(**settings)  # type: ignore[arg-type]


def test_a_client_certificate_needs_its_key() -> None:
    with pytest.raises(ValidationError):
        ChannelSettings(tls_certificate_file=Path("c"))


@pytest.mark.parametrize("settings", [ServerSettings, ChannelSettings])
def test_every_field_is_documented(settings: type[Settings]) -> None:
    (definition,) = ast.parse(inspect.getsource(settings)).body
    assert isinstance(definition, ast.ClassDef)
    documented = {
        field.target.id
        for field, docstring in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
    }
    assert set(settings.model_fields) <= documented


class RemoteSettings(Settings):
    section: ClassVar[str] = "remote"

    target: Address = ""
    """Where."""


@pytest.mark.parametrize(
    "target", ["", "judges.svc:50051", "[::1]:1", "unix:/run/judge.sock", "dns:///x:65535"]
)
def test_an_address_has_a_port(target: str) -> None:
    assert RemoteSettings(target=target).target == target


@pytest.mark.parametrize("target", ["localhost", "http://localhost:1", "localhost:0", "localhost:99999"])
def test_an_address_without_a_port_is_refused(target: str) -> None:
    with pytest.raises(ValidationError, match="use HOST:PORT"):
        RemoteSettings(target=target)
