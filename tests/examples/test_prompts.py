"""The prompt set in another language, mounted as a deployment mounts one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dramaturg.judge.client import judge_one, judge_request
from dramaturg.service.channel import open_channel
from dramaturg.testing import FakeGeneration, serve
from services.agents.commonsense.app import App as CommonsenseApp
from services.agents.commonsense.settings import CommonsenseSettings
from services.agents.critic.app import App as CriticApp
from services.agents.critic.settings import CriticSettings
from services.agents.execute.app import App as ExecuteApp
from services.agents.execute.settings import ExecuteSettings
from services.judging.pairs.app import App as PairJudgeApp
from services.judging.pairs.settings import PairJudgeSettings
from tests.support.command_line import ROOT
from tests.support.judges import TASK, all_pass, candidate

GERMAN = ROOT / "examples" / "prompts" / "de"
APPS: dict[str, tuple[Any, Any]] = {
    "critic": (CriticApp, CriticSettings),
    "execute": (ExecuteApp, ExecuteSettings),
    "commonsense": (CommonsenseApp, CommonsenseSettings),
}


@pytest.mark.parametrize("name", APPS)
async def test_one_folder_puts_the_prompts_of_several_judges_into_german(name: str) -> None:
    app, settings = APPS[name]
    generation = FakeGeneration(all_pass)
    async with serve(generation.contract()) as server:
        mounted = settings(generation_target=server.target, prompts_dir=GERMAN)
        async with (
            app(mounted).open() as contracts,
            serve(*contracts) as served,
            open_channel(served.target) as channel,
        ):
            assessment = await judge_one(channel, judge_request(TASK, [candidate("Koche es.")]), timeout=30)
    [request] = generation.requests
    system, user = (message.text for message in request.messages)
    assert "Es spricht nie zu dir" in system
    assert "Pass: " in system
    assert "Begründe auf Deutsch" in system
    assert "Anleitung:\n[BEGIN candidate" in user
    assert not {"Everything between", "Each criterion", "Script:"} & {*system.split("\n"), *user.split("\n")}
    assert {verdict.outcome for verdict in assessment.verdicts} == {1}


async def test_prompts_that_the_set_lacks_are_the_shipped_ones() -> None:
    async with PairJudgeApp(PairJudgeSettings(prompts_dir=GERMAN)).open() as contracts:
        assert contracts
    sets = {file.relative_to(GERMAN) for file in GERMAN.rglob("*.md")}
    assert Path("pair-judge/compare_replies.md") not in sets
