"""What the service can be told, and how."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from dramaturg.service.settings import SettingsError
from services.generation.app import App
from services.generation.settings import EndpointSettings, GenerationSettings
from tests.support.generation import generation_settings

CONFIGURATION = """
[generation]
default_model = "local/big"

[generation.providers.local]
kind = "chat"
base_url = "http://127.0.0.1:8000/v1"

[generation.providers.local.concurrency]
maximum = 16

[generation.providers.recorded]
kind = "replay"
path = "run.jsonl"
record_from = "local"
"""


def test_providers_come_from_the_configuration_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dramaturg.toml"
    file.write_text(CONFIGURATION)
    monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
    settings = GenerationSettings()
    assert list(settings.providers) == ["local", "recorded"]
    local = settings.providers["local"]
    assert isinstance(local, EndpointSettings)
    assert local.concurrency.maximum == 16
    assert settings.default_model == "local/big"


def test_the_environment_overrides_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAMATURG_GENERATION_PROVIDERS__VLLM__KIND", "chat")
    monkeypatch.setenv("DRAMATURG_GENERATION_PROVIDERS__VLLM__BASE_URL", "http://vllm:8000/v1")
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    settings = GenerationSettings()
    vllm = settings.providers["vllm"]
    assert isinstance(vllm, EndpointSettings)
    assert vllm.base_url == "http://vllm:8000/v1"


def test_the_ledger_lies_in_the_user_s_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert GenerationSettings().ledger == str(tmp_path / "dramaturg" / "completions.sqlite3")


@pytest.mark.parametrize(
    ("provider", "names"),
    [
        ({"kind": "strange"}, "kind"),
        ({"kind": "chat", "base_url": "ftp://x"}, "base_url"),
        ({"kind": "chat", "api_key": "never in a file"}, "api_key"),
        ({"kind": "chat", "api_key_env": "A", "api_key_file": "b"}, "exclude"),
        ({"kind": "chat", "concurrency": {"minimum": 9, "maximum": 3}}, "minimum"),
        ({"kind": "chat", "retries": {"transient_attempts": 0}}, "transient_attempts"),
        ({"kind": "replay"}, "path"),
    ],
)
def test_what_cannot_be_is_refused_by_name(provider: dict[str, object], names: str) -> None:
    with pytest.raises(ValidationError, match=names) as raised:
        generation_settings(providers={"p": provider})
    assert "never in a file" not in str(raised.value)


async def test_the_service_names_its_contracts() -> None:
    async with App(generation_settings()).open() as contracts:
        assert [contract.full_name for contract in contracts] == [
            "dramaturg.api.generation.v1.GenerationService",
            "dramaturg.api.generation.v1.AuthoringService",
            "dramaturg.api.generation.v1.EdgeService",
        ]
        assert all(list(contract.identity.capabilities) == ["calls-models"] for contract in contracts)


@pytest.mark.parametrize(
    ("given", "setting", "address"),
    [
        ({"ledger": ":memory:"}, "ledger", "sqlite://"),
        ({"ledger": "/data/l"}, "ledger", "sqlite:////data/l"),
        ({"ledger_url": "sqlite:///l"}, "ledger_url", "sqlite:///l"),
        ({"ledger_url": "postgresql://a:b@h/d"}, "ledger_url", "postgresql://a:b@h/d"),
    ],
)
def test_the_ledger_is_a_file_or_a_url(given: dict[str, str], setting: str, address: str) -> None:
    settings = GenerationSettings(**given)  # type: ignore[arg-type]  # as the environment gives them
    assert (settings.ledger_setting(), settings.ledger_address()) == (setting, address)
    assert "a:b" not in repr(settings)


def test_a_url_of_another_store_is_refused() -> None:
    with pytest.raises(ValidationError, match="postgresql://") as raised:
        GenerationSettings(ledger_url="mysql://a:secret@h/d")  # type: ignore[arg-type]  # as the environment does
    assert "secret" not in str(raised.value)


async def test_a_ledger_that_cannot_be_used_is_named_by_its_setting() -> None:
    for given in ({"ledger": "/proc/nothing/l"}, {"ledger_url": "sqlite:////proc/nothing/l"}):
        with pytest.raises(SettingsError, match=f"generation.{next(iter(given))}: .*/proc/nothing/l"):
            async with App(generation_settings(**given)).open():
                pass
