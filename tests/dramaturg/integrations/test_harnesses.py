"""MLflow, Inspect AI, Jupyter and promptfoo, in environments of their own, as their users start them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from dramaturg.evaluation import evaluate_texts_async
from tests.support.command_line import ROOT
from tests.support.examples import EXAMPLES
from tests.support.harness_rows import CRITERIA, PROMPT, ROWS, gateway, http_gateway, write_rows

BIN = ROOT / ".tools" / "harnesses" / "bin"
PROMPTFOO = ROOT / ".tools" / "promptfoo" / "node_modules" / ".bin" / "promptfoo"
FOLDER = EXAMPLES / "integrations"
pytestmark = [pytest.mark.harnesses, pytest.mark.timeout(300)]

ASSESSMENTS = """
import json, mlflow

def of(assessment):
    error = assessment.error and assessment.error.error_code
    return {
        "value": assessment.value,
        "error": error,
        "rationale": assessment.rationale,
        "source": assessment.source.source_id,
        "metadata": assessment.metadata,
    }

traces = [
    [trace.data.spans[0].inputs, trace.data.spans[0].outputs, {a.name: of(a) for a in trace.info.assessments}]
    for trace in mlflow.search_traces(return_type="list", max_results=500, run_id=%(run)s)
]
"""
SCORED = "run = mlflow.search_runs(output_format='list')[0].info.run_id\n"
LOGGED = """
from pathlib import Path
import mlflow
from dramaturg.integrations.mlflow import TABLE, log_results
from dramaturg.results.files import read_results

with mlflow.start_run() as active:
    log_results(read_results(Path("results.jsonl")))
run = active.info.run_id
metrics = mlflow.get_run(run).data.metrics
table = mlflow.load_table(TABLE, run_ids=[run])
"""


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with gateway() as (address, _):
        yield address


def run(target: str, folder: Path, *command: object) -> str:
    """The output of a command of the environment of the harnesses."""
    program, *arguments = map(str, command)
    done = subprocess.run(
        [str(BIN / program), *arguments],
        cwd=folder,
        env={
            **os.environ,
            "DRAMATURG_TARGET": target,
            "PYTHONPATH": str(ROOT),
            "ANSWERS": str(folder / "answers.jsonl"),
            "MLFLOW_GENAI_EVAL_MAX_WORKERS": "1",  # SQLite has one writer
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def means() -> Mapping[str, float]:
    values: dict[str, list[float]] = {"polite": [], "clear": []}
    for row in ROWS:
        for criterion, value in row.expected().items():
            values[criterion] += [] if value is None else [value]
    return {criterion: sum(given) / len(given) for criterion, given in values.items()}


def assert_equal(assessments: Mapping[str, Any], expected: Mapping[str, float | None]) -> None:
    assert {name: one["value"] for name, one in assessments.items()} == expected
    for name, one in assessments.items():
        assert (one["error"] is not None) == (expected[name] is None)
        assert one["source"] == "judge-0"
        assert PROMPT in one["metadata"]["provenance"]


def test_mlflow_scores_the_rows(target: str, tmp_path: Path) -> None:
    rows = write_rows(tmp_path)
    printed = run(target, tmp_path, "python", FOLDER / "mlflow_scorer.py", rows).splitlines()[-1]
    metrics = json.loads(printed)
    assert metrics == pytest.approx({f"{name}/mean": value for name, value in means().items()})
    code = "import mlflow\n" + SCORED + ASSESSMENTS % {"run": "run"} + "print(json.dumps(traces))"
    traces = json.loads(run(target, tmp_path, "python", "-c", code).splitlines()[-1])
    by_output = {output: assessments for _, output, assessments in traces}
    assert len(traces) == len(by_output) == len(ROWS)
    for row in ROWS:
        assert_equal(by_output[row.output], row.expected())
    assert by_output[ROWS[1].output]["polite"]["rationale"] == "It is rude.\nIt greets nobody."
    assert "It greets nobody." in by_output[ROWS[1].output]["polite"]["metadata"]["findings"]
    assert by_output[ROWS[2].output]["polite"]["error"] == "UNPARSABLE"


def test_mlflow_has_the_results_of_a_run(target: str, tmp_path: Path) -> None:
    async def evaluated() -> list[Any]:
        texts = [{"id": str(index), "model": "m", "text": row.output} for index, row in enumerate(ROWS)]
        return [
            (await evaluate_texts_async(row.goal, [text], CRITERIA, target=target)).message
            for row, text in zip(ROWS, texts, strict=True)
        ]

    results = asyncio.run(evaluated())
    lines = "".join(json.dumps(MessageToDict(one)) + "\n" for one in results)
    (tmp_path / "results.jsonl").write_text(lines)
    shown = "print(json.dumps([traces, metrics, table.to_dict('records')], default=str))"
    code = LOGGED + ASSESSMENTS % {"run": "run"} + shown
    traces, metrics, table = json.loads(run(target, tmp_path, "python", "-c", code).splitlines()[-1])
    by_output = {output: (inputs, assessments) for inputs, output, assessments in traces}
    assert len(by_output) == len(ROWS)
    for row in ROWS:
        inputs, assessments = by_output[row.output]
        assert inputs == {"goal": row.goal}
        assert_equal(assessments, row.expected())
    judged = sum(row.polite is not None for row in ROWS)
    assert metrics["m/polite/mean"] == pytest.approx(means()["polite"])
    assert metrics["m/clear/mean"] == pytest.approx(means()["clear"])
    assert (metrics["m/polite/judged_count"], metrics["m/polite/judgement_count"]) == (judged, len(ROWS))
    assert len(table) == 2 * len(ROWS)
    assert [one["outcome"] for one in table if one["measure"] == "polite"].count("ABSTAIN") == len(
        ROWS
    ) - judged


def test_inspect_scores_the_rows(target: str, tmp_path: Path) -> None:
    write_rows(tmp_path)
    for name in ("inspect_scorer.py", "rubric.toml"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    options = ("--model", "mockllm/model", "--display", "none", "--log-format", "json", "--log-dir", "logs")
    run(target, tmp_path, "inspect", "eval", "inspect_scorer.py", *options)
    (log,) = map(json.loads, (file.read_text() for file in (tmp_path / "logs").glob("*.json")))
    assert log["status"] == "success"
    scores = {one["name"]: one for one in log["results"]["scores"]}
    for name, mean in means().items():
        judged = sum(row.expected()[name] is not None for row in ROWS)
        assert scores[name]["metrics"]["mean"]["value"] == pytest.approx(mean)
        assert (scores[name]["scored_samples"], scores[name]["unscored_samples"]) == (
            judged,
            len(ROWS) - judged,
        )
    by_goal = {sample["input"]: sample["scores"]["dramaturg_judge"] for sample in log["samples"]}
    for row in ROWS:
        score = by_goal[row.goal]
        value = {key: None if one != one else one for key, one in score["value"].items()}
        assert value == row.expected()
        judgements = score["metadata"]["judgements"]
        assert judgements[0]["provenance"][0]["prompts"][0]["sha256"] == PROMPT
    assert "It greets nobody." in by_goal[ROWS[1].goal]["explanation"]
    assert by_goal[ROWS[2].goal]["reason"] == "grader_failed"


def test_promptfoo_asserts_on_the_rows_over_http(tmp_path: Path) -> None:
    rows = write_rows(tmp_path)
    with http_gateway() as url:
        variables = {
            "DRAMATURG_URL": url,
            "ANSWERS": str(rows),
            "PROMPTFOO_CONFIG_DIR": str(tmp_path / "promptfoo"),
            "PROMPTFOO_DISABLE_TELEMETRY": "1",
            "PROMPTFOO_DISABLE_UPDATE": "1",
            "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
        }
        done = subprocess.run(
            [PROMPTFOO, "eval", "-c", FOLDER / "promptfoo.mjs", "--no-cache", "-o", tmp_path / "out.json"],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 100, done.stdout + done.stderr  # promptfoo's code for failed tests
    found = {
        one["vars"]["answer"]: one["gradingResult"]
        for one in json.loads((tmp_path / "out.json").read_text())["results"]["results"]
    }
    assert len(found) == len(ROWS)
    for row in ROWS:
        (result,) = found[row.output]["componentResults"]
        judged = {name: value for name, value in row.expected().items() if value is not None}
        assert result["namedScores"] == judged
        assert result["pass"] == (row.polite is True and row.clear is not None)
    assert "polite: abstains, UNPARSABLE: No answer." in found[ROWS[2].output]["reason"]


def test_the_notebook_runs_and_shows_the_card_and_the_progress(target: str, tmp_path: Path) -> None:
    write_rows(tmp_path)
    for name in ("notebook.ipynb", "rubric.toml"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    run(target, tmp_path, "jupyter", "execute", "notebook.ipynb", "--inplace", "--kernel_name", "python3")
    cells = json.loads((tmp_path / "notebook.ipynb").read_text())["cells"]
    outputs = [one for cell in cells for one in cell.get("outputs", ())]
    assert not [one for one in outputs if one["output_type"] == "error"]
    shown = [one["data"] for one in outputs if "data" in one]
    (card,) = ["".join(data["text/html"]) for data in shown if "dramaturg-card" in str(data.get("text/html"))]
    for row in ROWS:
        assert row.output in card
    assert card.count("\u25a0 PASS") == 2 * sum(row.polite is True for row in ROWS)
    assert "UNPARSABLE" in card
    bars = [data for data in shown if "application/vnd.jupyter.widget-view+json" in data]
    assert len(bars) == 1
    assert "50/50" in json.dumps(json.loads((tmp_path / "notebook.ipynb").read_text())["metadata"])
    assert [data for data in shown if "polite" in str(data.get("text/html")) and "<table" in str(data)]
