"""The demo as a new user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_replays_every_answer() -> None:
    finished = subprocess.run(
        [sys.executable, "examples/demo.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
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
