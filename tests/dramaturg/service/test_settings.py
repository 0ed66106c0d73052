from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, ValidationError

from dramaturg.service.settings import ChannelSettings, ServerSettings, Settings, SettingsError, explain


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
    assert "modle" in explain(raised.value)


def test_other_tables_are_not_looked_at(config: Path) -> None:
    config.write_text('[other]\nmodle = "x"\n')
    assert JudgeSettings().model == "default"


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
