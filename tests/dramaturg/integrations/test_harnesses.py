"""The harnesses in environments of their own, started by the commands of the documentation."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import sqlite3
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from dramaturg.evaluation import evaluate_texts_async
from tests.support.command_line import ROOT
from tests.support.harness_rows import (
    CRITERIA,
    PROMPT,
    ROWS,
    copy_examples,
    gateway,
    http_gateway,
    trace_id,
)

BIN = ROOT / ".tools" / "harnesses" / "bin"
MODULES = ROOT / ".tools" / "promptfoo" / "node_modules"
DOCUMENT = (ROOT / "docs" / "guide" / "integrations.md").read_text()
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
FOUND = """
import mlflow
from dramaturg.integrations.mlflow import TABLE

run = mlflow.search_runs(output_format="list")[0].info.run_id
metrics = mlflow.get_run(run).data.metrics
table = mlflow.load_table(TABLE, run_ids=[run])
"""


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with gateway() as (address, _):
        yield address


def run(
    folder: Path, command: str, variables: Mapping[str, str], code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Runs a command of a shell with the programs of the harnesses and with this working tree."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    for metadata in Path(str(distribution("dramaturg").locate_file(""))).glob("dramaturg-*.dist-info"):
        if not (site / metadata.name).exists():
            (site / metadata.name).symlink_to(metadata)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{site}",
            "INSPECT_DISPLAY": "none",
            "INSPECT_LOG_FORMAT": "json",
            "MLFLOW_GENAI_EVAL_MAX_WORKERS": "1",  # SQLite has one writer
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def printed(section: str, block: int = 0) -> str:
    """A block of code of a section of the documentation, without the commands that install something."""
    _, _, after = DOCUMENT.partition(f"\n## {section}\n")
    code = re.findall(r"^```[^\n]*\n(.*?)^```$", after, re.DOTALL | re.MULTILINE)[block]
    return "\n".join(line for line in code.splitlines() if not line.startswith("pip install"))


def lines_of(target: str, folder: Path, code: str) -> Any:
    """What Python code of an environment with the harnesses prints as its last line, in JSON."""
    (folder / "check.py").write_text(code)
    return json.loads(run(folder, "python check.py", {"DRAMATURG_TARGET": target}).stdout.splitlines()[-1])


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
    copy_examples(tmp_path)
    done = run(tmp_path, printed("MLflow"), {"DRAMATURG_TARGET": target})
    metrics = json.loads(done.stdout.splitlines()[-1])
    assert metrics == pytest.approx({f"{name}/mean": value for name, value in means().items()})
    code = "import mlflow\n" + SCORED + ASSESSMENTS % {"run": "run"} + "print(json.dumps(traces))"
    traces = lines_of(target, tmp_path, code)
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
    (tmp_path / "out" / "support").mkdir(parents=True)
    (tmp_path / "out" / "support" / "results.jsonl").write_text(lines)
    shown = "print(json.dumps([traces, metrics, table.to_dict('records')], default=str))"
    code = printed("MLflow", 1) + FOUND + ASSESSMENTS % {"run": "run"} + shown
    traces, metrics, table = lines_of(target, tmp_path, code)
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
    copy_examples(tmp_path)
    run(tmp_path, printed("Inspect AI"), {"DRAMATURG_TARGET": target})
    (log,) = map(json.loads, (file.read_text() for file in tmp_path.rglob("logs/*.json")))
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
    copy_examples(tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES)
    store = tmp_path / "promptfoo"
    with http_gateway() as url:
        variables = {
            "DRAMATURG_URL": url,
            "PROMPTFOO_CONFIG_DIR": str(store),
            "PROMPTFOO_DISABLE_TELEMETRY": "1",
            "PROMPTFOO_DISABLE_UPDATE": "1",
            "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
        }
        run(tmp_path, printed("promptfoo"), variables, 100)  # promptfoo's code for failed tests
    with contextlib.closing(sqlite3.connect(store / "promptfoo.db")) as database:
        rows = database.execute("select test_case, grading_result from eval_results").fetchall()
    found = {json.loads(case)["vars"]["answer"]: json.loads(result) for case, result in rows}
    assert len(found) == len(ROWS)
    for row in ROWS:
        (result,) = found[row.output]["componentResults"]
        judged = {name: value for name, value in row.expected().items() if value is not None}
        assert result["namedScores"] == judged
        assert result["pass"] == (row.polite is True and row.clear is not None)
    assert "polite: abstains, UNPARSABLE: No answer." in found[ROWS[2].output]["reason"]


def test_the_notebook_runs_and_shows_the_card_and_the_progress(target: str, tmp_path: Path) -> None:
    notebook = copy_examples(tmp_path) / "notebook.ipynb"
    run(tmp_path, printed("Notebooks"), {"DRAMATURG_TARGET": target})
    cells = json.loads(notebook.read_text())["cells"]
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
    assert "50/50" in json.dumps(json.loads(notebook.read_text())["metadata"])
    assert [data for data in shown if "polite" in str(data.get("text/html")) and "<table" in str(data)]


class Langfuse(ThreadingHTTPServer):
    """An imitation of ``POST /api/public/scores``, for the keys that the documentation prints."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Scores)
        self.scores: dict[tuple[str, str], dict[str, Any]] = {}
        """The scores by their ids and times."""
        self.rejects = False


class _Scores(BaseHTTPRequestHandler):
    server: Langfuse

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        keys = base64.b64encode(b"pk-lf-1:sk-lf-1").decode()
        assert self.headers["Authorization"] == f"Basic {keys}"
        assert self.path == "/api/public/scores"
        answer: dict[str, Any] = {"message": "Accepted"}
        if self.server.rejects:
            answer = {"accepted": 0, "rejected": len(body), "errors": [{"message": "no"}]}
        else:
            self.server.scores |= {(one["id"], one["timestamp"]): one for one in body}
        data = json.dumps(answer).encode()
        self.send_response(207 if self.server.rejects else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


def test_each_trace_of_langfuse_has_the_scores_of_its_answer(target: str, tmp_path: Path) -> None:
    copy_examples(tmp_path)
    with Langfuse() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            variables = {"DRAMATURG_TARGET": target, "LANGFUSE_BASE_URL": url}
            for _ in range(2):  # a second run replaces the scores of the first
                done = run(tmp_path, printed("Langfuse"), variables)
                assert done.stdout == f"{2 * len(ROWS)} scores sent\n"
            server.rejects = True
            assert "rejects scores" in run(tmp_path, printed("Langfuse"), variables, 1).stderr
        finally:
            server.shutdown()
            thread.join()
    assert len(server.scores) == 2 * len(ROWS)
    by_trace: dict[str, dict[str, Any]] = {}
    for score in server.scores.values():
        by_trace.setdefault(score["traceId"], {})[score["name"]] = score
    for number, row in enumerate(ROWS):
        scores = by_trace[trace_id(number)]
        for name, value in row.expected().items():
            score = scores[name if value is not None else f"{name} abstains"]
            kind = "CATEGORICAL" if value is None else "BOOLEAN" if name == "polite" else "NUMERIC"
            assert (score["dataType"], score["value"]) == (kind, score["value"] if value is None else value)
            assert PROMPT in json.dumps(score["metadata"])
    assert by_trace[trace_id(1)]["polite"]["comment"] == "It is rude.\nIt greets nobody."
    assert by_trace[trace_id(2)]["polite abstains"]["value"] == "UNPARSABLE"


def test_the_documentation_names_the_versions_that_are_tested(tmp_path: Path) -> None:
    names = {"MLflow": "mlflow", "Inspect AI": "inspect-ai", "Jupyter": "ipykernel", "Langfuse": "langfuse"}
    code = "import json, importlib.metadata as m\n"
    versions = lines_of(
        "", tmp_path, f"{code}print(json.dumps({{k: m.version(v) for k, v in {names}.items()}}))"
    )
    versions["promptfoo"] = json.loads((MODULES / "promptfoo" / "package.json").read_text())["version"]
    rows = [[cell.strip() for cell in line.split("|")] for line in DOCUMENT.splitlines()]
    stated = {row[1]: row[3] for row in rows if len(row) == 6}
    assert {name: stated[name].split()[-1] for name in versions} == versions
