"""The demo as a new user runs it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from dramaturg.testing import until
from tests.support.openai_server import Body, Misbehaviour, OpenAIServer
from tests.support.scripted_model import approve

ROOT = Path(__file__).resolve().parents[2]


COMMAND = [sys.executable, "examples/demo.py"]


def variables_of(environment: Mapping[str, str]) -> Mapping[str, str]:
    unset = ("MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "DRAMATURG_CONFIG")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return {**inherited, **environment}


def demo(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        COMMAND,
        cwd=ROOT,
        env=variables_of(environment),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def hesitant(body: Body) -> str:
    """Passes everything, but says nothing about whether a script can be executed."""
    return "I would rather not say." if "executable" in str(body["response_format"]) else approve(body)


async def test_the_demo_shows_what_a_weak_model_judged_and_replays_every_answer(tmp_path: Path) -> None:
    # In one test: all write to out/demo.
    async with OpenAIServer(hesitant, models=("m",)) as server:
        variables = {
            "OPENAI_BASE_URL": server.base_url,
            "MODEL": "m",
            "DRAMATURG_GENERATION_LEDGER": str(tmp_path / "ledger.sqlite3"),
        }
        weak = await asyncio.to_thread(demo, variables)
        # It also ends the evaluation when it is ended.
        server.misbehaviour = Misbehaviour({"hang": 1.0})
        server.forget()
        variables["DRAMATURG_GENERATION_LEDGER"] = str(tmp_path / "other.sqlite3")
        ended = await asyncio.create_subprocess_exec(
            *COMMAND, cwd=ROOT, env=variables_of(variables), start_new_session=True
        )
        await until(lambda: bool(server.requests), 100)
        ended.terminate()
        assert await ended.wait() != 0
        await until(lambda: not has_processes(ended.pid), 20)
    assert weak.returncode == 4, weak.stderr
    assert "UNPARSABLE" in weak.stdout
    assert "report: out/demo/report.html" in weak.stdout
    assert "Fewer than 0.9 of the judgements were made" in weak.stdout
    finished = await asyncio.to_thread(demo, {})
    assert finished.returncode == 0, finished.stderr
    assert (
        "32 candidates, 224 verdicts: 186 PASS, 33 FAIL, "
        "5 ABSTAIN (UNPARSABLE 3, CONTRADICTORY 1, REFUSED 1)\n"
        "0 calls of a model, 105 answers from the ledger, $0, in "
    ) in finished.stdout
    assert "no model was asked" in finished.stdout
    assert finished.stdout.rstrip().splitlines()[-1].startswith("report: out/demo/report.html")
    assert "Vegetable" in (ROOT / "out/demo/report.html").read_text(encoding="utf-8").title()
    results = [json.loads(line) for line in (ROOT / "out/demo/results.jsonl").read_text().splitlines()]
    reasons = {
        verdict["abstainReason"]
        for result in results
        for candidate in result["candidates"]
        for verdict in candidate["verdicts"]
        if verdict["outcome"] == "OUTCOME_ABSTAIN"
    }
    # A completion that was not recorded, after a prompt changed, would show as an unavailable judge.
    assert reasons == {
        "ABSTAIN_REASON_REFUSED",
        "ABSTAIN_REASON_UNPARSABLE",
        "ABSTAIN_REASON_CONTRADICTORY",
    }
