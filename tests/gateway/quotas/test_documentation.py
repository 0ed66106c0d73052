"""The examples of docs/security.md are what the settings take."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dramaturg.service.auth.identities import Identities
from dramaturg.service.auth.permissions import ROLES
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.auth.tokens import StaticTokens
from gateway.http.settings import HttpSettings
from gateway.quotas.settings import QuotaSettings
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings
from tests.support.command_line import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    file = tmp_path / "dramaturg.toml"
    file.write_text(example)
    tables = tomllib.loads(example).keys()
    monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
    if "tokens" in tables:
        StaticTokens(file)
    elif "auth" in tables:
        settings = AuthSettings()
        assert settings.enabled
        Identities(settings.identities)
    else:
        assert tables == {"quotas"}
        assert QuotaSettings().of("research").max_active_runs == 20
        assert QuotaSettings().of("another").max_active_runs == 5


def test_the_table_of_roles_is_true() -> None:
    header = re.search(r"^\| role \|( evaluate .+)\|$", TEXT, re.MULTILINE)
    assert header is not None
    permissions = [cell.strip() for cell in header[1].split("|")]
    for role, may in ROLES.items():
        row = re.search(rf"^\| {role} \|(.+)\|$", TEXT, re.MULTILINE)
        assert row is not None, role
        crosses = [cell.strip() for cell in row[1].split("|")]
        assert {name for name, cross in zip(permissions, crosses, strict=True) if cross} == may


def test_every_variable_that_is_named_exists() -> None:
    from dramaturg.service.settings import ChannelSettings, ServerSettings
    from services.embedding.settings import EmbeddingSettings

    known = {
        kind.variable(field)
        for kind in (AuthSettings, ChannelSettings, EmbeddingSettings, RunsSettings, ServerSettings)
        for field in kind.model_fields
    } | {f"{GatewaySettings.variable('http')}__{field.upper()}" for field in HttpSettings.model_fields}
    assert set(re.findall(r"DRAMATURG_[A-Z_0-9]+", TEXT)) <= known
