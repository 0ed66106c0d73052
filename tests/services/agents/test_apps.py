"""The agents as services: backends, prompts, and the contract they keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dramaturg.judge import roles
from dramaturg.judge.prompts import PromptError
from dramaturg.judge.spec import JudgeSpec
from dramaturg.service.settings import SettingsError
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.synthesize.synthesizer import SPEC as SYNTHESIZE_SPEC
from tests.services.agents.conftest import AGENTS

JUDGES: dict[str, JudgeSpec[Any]] = {"synthesize": SYNTHESIZE_SPEC, **AGENTS}


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize(("backend", "calls_models"), [("llm", True), ("offline", False)])
async def test_the_backend_is_a_setting(
    name: str, backend: str, calls_models: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"DRAMATURG_{name.upper()}_BACKEND", backend)
    app = JUDGES[name]()
    assert app.name == name
    async with app.open() as [contract]:
        assert contract.full_name == roles.ROLES[name].contract
        assert ("calls-models" in contract.identity.capabilities) == calls_models
        assert contract.identity.description


async def test_settings_come_from_the_file_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "dramaturg.toml"
    monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
    file.write_text('[critic]\nmodel = "p/m"\n\n[critic.excerpts]\ncandidate = 5000\n', encoding="utf-8")
    settings = CRITIC_SPEC.settings_type()
    assert (settings.model, settings.excerpts.candidate) == ("p/m", 5000)


async def test_a_bad_prompt_keeps_the_service_from_starting(tmp_path: Path) -> None:
    (tmp_path / "critique.md").write_text("# user\nJudge {{candidat}}.", encoding="utf-8")
    app = CRITIC_SPEC(prompts_dir=tmp_path)
    with pytest.raises(PromptError, match=r"critique\.md") as caught:
        async with app.open():
            pass
    assert isinstance(caught.value, SettingsError)
