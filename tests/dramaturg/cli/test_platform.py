from __future__ import annotations

from importlib import metadata

import pytest
from typer.testing import CliRunner

from dramaturg.cli import platform
from dramaturg.cli.main import app


async def test_without_the_services_a_gateway_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: [])
    with pytest.raises(platform.UsageError, match="--target"):
        async with platform.gateway(None):
            pass
    async with platform.gateway("elsewhere:1") as target:
        assert target == "elsewhere:1"


def test_settings_that_cannot_be_used_are_a_message_and_exit_code_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAMATURG_GATEWAY_CALLS_PER_JUDGE", "none")
    done = CliRunner().invoke(app, ["judges"])
    assert done.exit_code == 2
    assert "calls_per_judge" in done.stderr
    assert "Traceback" not in done.stderr
