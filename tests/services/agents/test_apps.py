"""The agents as services: backends, prompts, and the contract they keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dramaturg import conformance
from dramaturg.judge import roles
from dramaturg.judge.prompts import PromptError
from dramaturg.judge.spec import JudgeSpec
from dramaturg.service.settings import SettingsError
from dramaturg.testing import FakeGeneration, serve
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.synthesize.synthesizer import SPEC as SYNTHESIZE_SPEC
from tests.services.agents.conftest import AGENTS
from tests.support.judges import all_pass

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


@pytest.mark.parametrize("name", AGENTS)
async def test_keeps_the_contract_of_its_role(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(FakeGeneration(all_pass).contract()) as generation:
        monkeypatch.setenv(f"DRAMATURG_{name.upper()}_GENERATION_TARGET", generation.target)
        async with JUDGES[name]().open() as contracts, serve(*contracts) as server:
            outcomes = await conformance.run(AGENTS[name].role, server.target, timeout=20)
    assert [(one.check.name, one.failure) for one in outcomes if one.broken] == []
    assert len(outcomes) > 5
