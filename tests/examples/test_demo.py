"""The demo as a new user runs it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.openai_server import Body, OpenAIServer
from tests.support.scripted_model import approve

ROOT = Path(__file__).resolve().parents[2]


def demo(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    unset = ("MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "DRAMATURG_CONFIG")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "examples/demo.py"],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def hesitant(body: Body) -> str:
    """Passes everything, but says nothing about whether a script can be executed."""
    return "I would rather not say." if "executable" in str(body["response_format"]) else approve(body)


async def test_the_demo_shows_what_a_weak_model_judged_and_replays_every_answer(tmp_path: Path) -> None:
    # In one test: both write to out/demo.
    async with OpenAIServer(hesitant, models=("m",)) as server:
        variables = {
            "OPENAI_BASE_URL": server.base_url,
            "MODEL": "m",
            "DRAMATURG_GENERATION_LEDGER": str(tmp_path / "ledger.sqlite3"),
        }
        weak = await asyncio.to_thread(demo, variables)
    assert weak.returncode == 4, weak.stderr
    assert "UNPARSABLE" in weak.stdout
    assert "report: out/demo/report.html" in weak.stdout
    assert "Fewer than 0.9 of the judgements were made" in weak.stdout
    finished = await asyncio.to_thread(demo, {})
    assert finished.returncode == 0, finished.stderr
    assert (
        "32 candidates, 224 verdicts: 186 PASS, 33 FAIL, "
        "5 ABSTAIN (UNPARSABLE 3, CONTRADICTORY 1, REFUSED 1)\n"
        "0 calls of a model, 105 answers from the ledger, $0\n"
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
