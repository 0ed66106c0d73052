from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.service.auth.authenticator import MOST_TOKENS, StaticTokens
from dramaturg.service.auth.identities import UnauthenticatedError
from dramaturg.service.settings import SettingsError

SHA256 = hashlib.sha256(b"t0ken").hexdigest()
TOML = f"""
[[tokens]]
sha256 = "{SHA256}"
principal = "ci@team-a"
tenant = "team-a"
roles = ["viewer", "evaluator"]
expires = {{expires}}
"""


def written(folder: Path, text: str, name: str = "tokens.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()


def test_a_token_is_found_by_its_hash(tmp_path: Path) -> None:
    tokens = StaticTokens(written(tmp_path, TOML.format(expires=in_an_hour())))
    caller = tokens.find("t0ken")
    assert caller is not None
    assert (caller.principal, caller.tenant) == ("ci@team-a", "team-a")
    assert caller.roles == {"viewer", "evaluator"}
    assert tokens.find("t0ken ") is None
    assert tokens.find(SHA256) is None, "the hash is as good as the token"


@given(st.text().filter(lambda text: text != "t0ken"))
def test_no_other_text_is_a_token(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "tokens.toml"
    file.write_text(TOML.format(expires=in_an_hour()))
    assert StaticTokens(file).find(text) is None


def test_a_token_ends(tmp_path: Path) -> None:
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    with pytest.raises(UnauthenticatedError, match="expired"):
        StaticTokens(written(tmp_path, TOML.format(expires=past))).find("t0ken")


def test_a_token_that_is_taken_out_is_refused_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, TOML.format(expires=in_an_hour()))
    tokens = StaticTokens(file)
    assert tokens.find("t0ken")
    file.write_text("tokens = []")
    os.utime(file, ns=(0, 1))
    assert tokens.find("t0ken") is None


def test_a_file_that_is_half_written_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path, TOML.format(expires=in_an_hour()))
    tokens = StaticTokens(file)
    file.write_text('[[tokens]]\nsha256 = "secret')
    os.utime(file, ns=(0, 1))
    assert tokens.find("t0ken")
    assert "could not be read again" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"sha256": "t0ken-in-the-clear"}, "sha256"),
        ({"roles": ["emperor"]}, "none of the roles"),
        ({"roles": []}, "roles"),
        ({"tenant": ""}, "no tenant"),
        ({"tenant": "Team A"}, "tenant"),
        ({"principal": "two words"}, "principal"),
        ({"expires": "2030-01-01T00:00:00"}, "expires"),
        ({"expiry": "2030-01-01T00:00:00Z"}, "expiry"),
    ],
)
def test_an_entry_that_is_wrong_is_named_without_its_value(
    tmp_path: Path, change: dict[str, object], wrong: str
) -> None:
    entry = {"sha256": SHA256, "principal": "a", "tenant": "team-a", "roles": ["viewer"], **change}
    file = written(tmp_path, json.dumps({"tokens": [entry]}), "tokens.json")
    with pytest.raises(SettingsError) as raised:
        StaticTokens(file)
    assert wrong in str(raised.value)
    assert str(file) in str(raised.value)
    assert "t0ken-in-the-clear" not in str(raised.value)


def test_a_service_goes_without_a_tenant(tmp_path: Path) -> None:
    entry = {"sha256": SHA256, "principal": "gateway", "roles": ["service"]}
    caller = StaticTokens(written(tmp_path, json.dumps({"tokens": [entry]}), "t.json")).find("t0ken")
    assert caller is not None
    assert caller.tenant == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.json", "{secret"), ("t.toml", "secret = "), ("t.json", '["secret"]'), ("t.toml", "x = 1")],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=name) as raised:
        StaticTokens(written(tmp_path, text, name))
    assert "secret" not in str(raised.value)


def test_there_are_bounds(tmp_path: Path) -> None:
    entries = [
        {"sha256": f"{number:064x}", "principal": f"p{number}", "tenant": "a", "roles": ["viewer"]}
        for number in range(MOST_TOKENS + 1)
    ]
    with pytest.raises(SettingsError, match=f"{MOST_TOKENS}"):
        StaticTokens(written(tmp_path, json.dumps({"tokens": entries}), "t.json"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml cannot be read"):
        StaticTokens(tmp_path / "absent.toml")
