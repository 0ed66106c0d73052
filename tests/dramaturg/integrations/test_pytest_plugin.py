"""The pytest plugin, loaded by its entry point in a pytest of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dramaturg.integrations.pytest_plugin import read_judgements
from dramaturg.testing import FakeJudge
from tests.support.harness_rows import COST_USD, ROWS, copy_examples, gateway

UNREACHABLE = "127.0.0.1:1"
TESTS = """
import pytest

RUBRIC = {"polite": "The text greets."}
SCALE = [{"id": "clear", "description": "Clear.", "scale": {"lowest": 1, "highest": 5}}]


@pytest.mark.parametrize("text", %r)
def test_it(judge, text):
    judge.assert_passes(text, criteria=RUBRIC)


def test_a_scale(judge):
    judge.assert_passes("Hello!", criteria=SCALE)
"""
PASSING = 'def test_it(judge):\n    judge.assert_passes("Hello!", criteria={"polite": "It greets."})\n'


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, FakeJudge]]:
    with gateway() as started:
        yield started


def pytest_of(
    folder: Path, *arguments: object, target: str = UNREACHABLE
) -> subprocess.CompletedProcess[str]:
    """A run of pytest in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "DRAMATURG_TARGET": target},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def written(folder: Path, code: str) -> Path:
    (folder / "test_answers.py").write_text(code)
    return folder


def records(file: Path) -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=["one process", "two processes"]
)
def test_the_example_judges_the_rows_and_replays_them(
    served: tuple[str, FakeJudge], tmp_path: Path, workers: Sequence[str]
) -> None:
    target, judge = served
    report, example = tmp_path / "judgements.jsonl", copy_examples(tmp_path) / "test_answers.py"
    run = pytest_of(tmp_path, example, "--judge-report", report, *workers, target=target)
    passing = sum(row.polite is True and row.clear is not None and row.clear >= 0.5 for row in ROWS)
    assert f"{len(ROWS) - passing} failed, {passing + 1} passed" in run.stdout, run.stdout + run.stderr
    by_answer = {row.goal: row.expected() for row in ROWS}
    rows = [one for one in records(report) if "is_polite_and_clear" in one["test"]]
    order = {f"[row{index}]": row.goal for index, row in enumerate(ROWS)}
    for one in rows:
        goal = order["[" + one["test"].rpartition("[")[2]]
        assert {j["criterion"]: j.get("value") for j in one["judgements"]} == by_answer[goal]
        assert one["judgements"][0]["provenance"][0]["version"] == "1.0.0"
    assert len(rows) == len(ROWS)
    assert "== judgements ==" in run.stdout
    assert f"{COST_USD * (len(ROWS) + 1):g} US dollars" in run.stdout
    assert "ABSTAIN UNPARSABLE polite" in run.stdout
    asked = len(judge.requests)
    replayed = pytest_of(tmp_path, example, "--judge-replay", report, *workers)
    assert f"{len(ROWS) - passing} failed, {passing + 1} passed" in replayed.stdout
    assert "replayed" in replayed.stdout
    assert len(judge.requests) == asked


def test_a_text_passes_only_if_every_criterion_passes(served: tuple[str, FakeJudge], tmp_path: Path) -> None:
    failing, abstaining = ROWS[1].output, ROWS[2].output
    written(tmp_path, TESTS % (["Hello!", failing, abstaining],))
    junit = tmp_path / "junit.xml"
    run = pytest_of(tmp_path, "--junitxml", junit, target=served[0])
    assert "3 failed, 1 passed" in run.stdout, run.stdout
    assert "polite: FAIL\n    It is rude.\n    It greets nobody." in run.stdout
    assert "polite: ABSTAIN\n    UNPARSABLE\n    No answer." in run.stdout
    assert "clear: the score 5 of 1 to 5, which neither passes nor fails" in run.stdout
    assert "1 ABSTAIN, 1 FAIL, 1 PASS, 1 SCORE" in run.stdout
    properties = [json.loads(one.attrib["value"]) for one in ET.parse(junit).iter("property")]
    assert [one["judgements"][0]["criterion"] for one in properties] == ["polite"] * 3 + ["clear"]


def test_a_call_that_the_file_does_not_hold_fails(served: tuple[str, FakeJudge], tmp_path: Path) -> None:
    report = tmp_path / "judgements.jsonl"
    assert pytest_of(written(tmp_path, PASSING), "--judge-report", report, target=served[0]).returncode == 0
    asked = len(served[1].requests)
    changed = written(tmp_path, PASSING.replace("Hello!", "Hello you!"))
    run = pytest_of(changed, "--judge-replay", report, target=served[0])
    assert run.returncode == 1
    assert "does not hold this call" in run.stdout
    assert len(served[1].requests) == asked


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"key": "a"}', '{"test": "a", "key": "a", "judgements": [{}]}']
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "judgements.jsonl"
    file.write_text(content + "\n")
    with pytest.raises(pytest.UsageError, match=r"judgements.jsonl:1 is no judgement"):
        read_judgements(file)


def test_an_absent_file_ends_the_run(tmp_path: Path) -> None:
    run = pytest_of(written(tmp_path, PASSING), "--judge-replay", tmp_path / "absent")
    assert run.returncode == 4
    assert "absent cannot be read" in run.stderr


def test_a_budget_bounds_the_calls(served: tuple[str, FakeJudge], tmp_path: Path) -> None:
    written(tmp_path, TESTS % (["Hello!", "Hello 1", "Hello 2"],))
    before = len(served[1].requests)
    run = pytest_of(tmp_path, "-k", "test_it", "--judge-budget", COST_USD * 1.5, target=served[0])
    assert "1 failed, 2 passed" in run.stdout
    assert "--judge-budget: 0.5 of 0.375 US dollars are spent" in run.stdout
    assert len(served[1].requests) == before + 2


def test_a_failed_call_is_no_judgement(tmp_path: Path) -> None:
    run = pytest_of(written(tmp_path, PASSING))
    assert run.returncode == 1
    assert "ServiceError" in run.stdout
    assert "== judgements ==" not in run.stdout


def test_a_run_without_the_fixture_imports_nothing(tmp_path: Path) -> None:
    code = "import sys\n\ndef test_it():\n    assert not {'grpc', 'google.protobuf'} & set(sys.modules)\n"
    run = pytest_of(written(tmp_path, code))
    assert run.returncode == 0, run.stdout
    assert "judgements" not in run.stdout
