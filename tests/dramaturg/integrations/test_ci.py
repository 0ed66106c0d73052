"""The action of GitHub and the job of GitLab, each run by a shell with its runner's variables."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from dramaturg.integrations.ci import MARK
from tests.support.command_line import ROOT
from tests.support.harness_rows import ROWS, gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RUBRIC = '[[criteria]]\nid = "polite"\npasses = "The answer greets the customer."\n'
EVALUATE = "eval answers.csv --criteria rubric.toml"
Job = Callable[[Path, str, str], tuple[int, Mapping[str, str], str]]
"""Runs a job in a folder with a baseline against a gateway: its exit code, outputs and shown summary."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("runs") / "runs.sqlite3"
    with gateway(runs={"url": f"sqlite:///{store}"}) as (address, _):
        yield address


def shell(folder: Path, script: str, variables: Mapping[str, str]) -> int:
    """Runs a step as the runners do."""
    found = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    (folder / "bin").mkdir(exist_ok=True)
    python = folder / "bin" / "python3"
    if not python.exists():
        installs = 'if [ "$1 $2" = "-m pip" ]; then shift 3; echo "$@" >>"$0.installs"; exit; fi'
        python.write_text(f'#!/bin/sh\n{installs}\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    environment = {**found, "PATH": path, "PYTHONPATH": str(ROOT), "CI": "true", **variables}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, check=False, timeout=250).returncode


def github(folder: Path, baseline: str, target: str) -> tuple[int, Mapping[str, str], str]:
    action: Any = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {name: str(one.get("default", "")) for name, one in action["inputs"].items()}
    stated = {"evaluate": f"{EVALUATE} --target {target}", "compare": "--margin 0.2"}
    inputs |= {**stated, "baseline": baseline, "install": "none" if baseline else ""}
    summary, output = folder / "step_summary", folder / "output"
    runner = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(output),
    }
    code = 0
    for step in action["runs"]["steps"]:
        if step.get("if") == "${{ inputs.install != 'none' }}" and inputs["install"] == "none":
            continue
        own = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], value)
            for name, value in step["env"].items()
        }
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
        code = code or shell(folder, step["run"], {**runner, **own})
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    declared = {one["value"] for one in action["outputs"].values()}
    assert declared == {f"${{{{ steps.evaluate.outputs.{name} }}}}" for name in ("gate", "comment", "junit")}
    assert installs(folder) == [f"--quiet {ROOT}[platform]"]  # by the run without a baseline
    return code, outputs, summary.read_text()


def installs(folder: Path) -> list[str]:
    """What pip was asked to install."""
    return (folder / "bin" / "python3.installs").read_text().splitlines()


def gitlab(folder: Path, baseline: str, target: str) -> tuple[int, Mapping[str, str], str]:
    job: Any = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())[".dramaturg"]
    variables = {
        **job["variables"],
        "EVALUATE": f"{EVALUATE} --target {target}",
        "COMPARE": "--margin 0.2",
        **({"INSTALL": ""} if baseline else {}),
        "BASELINE": baseline,
        "GITLAB_CI": "true",
        "CI_PROJECT_DIR": str(folder),
    }
    code = shell(folder, "\n".join(job["script"]), variables)
    assert installs(folder) == ["--quiet dramaturg[platform]"]
    assert job["artifacts"]["reports"]["junit"] == "$OUT/junit.xml"
    out = folder / variables["OUT"]
    outputs = {"gate": "", "comment": str(out / "comment.md"), "junit": str(out / "junit.xml")}
    return code, outputs, (out / "summary.md").read_text()


def write(folder: Path, *, worse: bool) -> None:
    """The answers as a table; the worse ones greet nobody."""
    (folder / "rubric.toml").write_text(RUBRIC)
    with (folder / "answers.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("task", "text", "model"))
        for row in ROWS:
            rows.writerow((row.goal, f"No. {row.output[6:]}" if worse else row.output, "m"))


@pytest.mark.parametrize("job", [github, gitlab])
def test_a_job_evaluates_compares_and_writes_its_files(job: Job, target: str, tmp_path: Path) -> None:
    write(tmp_path, worse=False)
    code, outputs, summary = job(tmp_path, "", target)
    assert code in {0, 4}  # 4: fewer judgements were made than 0.9 of all
    assert outputs["gate"] == ""
    passed = sum(row.polite is True for row in ROWS)
    failed = sum(row.polite is False for row in ROWS)
    abstained = len(ROWS) - passed - failed
    mean = passed / (passed + failed)
    line = f"| m | polite | {mean:.3f} | {passed + failed} of 50 | {passed} | {failed} | {abstained} |"
    assert line in summary.splitlines()
    suite = ElementTree.parse(tmp_path / outputs["junit"]).getroot()
    assert dict(suite.attrib) == {
        "name": "dramaturg",
        "tests": "50",
        "failures": str(failed),
        "errors": "0",
        "skipped": str(abstained),
    }
    assert len(suite.findall("testcase/failure")) == failed
    assert {one.get("message") for one in suite.iterfind("testcase/failure")} == {
        "It is rude.\nIt greets nobody."
    }
    comment = (tmp_path / outputs["comment"]).read_text()
    assert comment.splitlines()[0] == MARK
    assert line in comment.splitlines()
    (tmp_path / "dramaturg-results").rename(tmp_path / "baseline")
    write(tmp_path, worse=True)
    code, outputs, summary = job(tmp_path, "baseline", target)
    assert code != 0
    assert "**NO-GO** against the baseline, margin 0.2." in summary
    suite = ElementTree.parse(tmp_path / outputs["junit"]).getroot()
    (gate,) = [one for one in suite if one.get("name") == "gate"]
    assert str(gate[0].get("message")).startswith("NO-GO\n")
    if job is github:
        assert outputs["gate"] == "NO-GO"


def test_a_job_that_cannot_evaluate_fails(tmp_path: Path) -> None:
    write(tmp_path, worse=False)
    (tmp_path / "answers.csv").write_text("text\n")
    out = tmp_path / "out"
    module = "python3 -m dramaturg.integrations.ci"
    assert shell(tmp_path, f'{module} --evaluate="{EVALUATE}" --out={out}', {}) == 2
    assert not (out / "junit.xml").exists()
