"""A step of CI: an evaluation, its comparison with a baseline, and their files for the runner.

``python -m dramaturg.integrations.ci`` is what ``action.yml`` (GitHub) and ``ci/gitlab.yml`` run. Beside the
results it writes ``summary.md``, ``comment.md`` (the summary after a mark by which a later run finds its
comment), ``junit.xml`` and, with a baseline, ``comparison.json``. On GitHub the summary is shown with the
job, and the files are outputs of the step.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.integrations.judge import HarnessJudgement, judgements
from dramaturg.report.views import view
from dramaturg.results.files import read_results

MARK = "<!-- dramaturg -->"
"""The first line of a comment."""

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IN_MARKDOWN = str.maketrans({"|": "\\|", "<": "&lt;", "@": "@\u200b", "`": "'", "\n": " ", "\r": " "})


def main() -> int:
    """Runs the step. Returns the exit code: of the evaluation, else of the comparison."""
    parser = argparse.ArgumentParser(prog="python -m dramaturg.integrations.ci", description=__doc__)
    parser.add_argument("--evaluate", required=True, help="the evaluation, as it follows after 'dramaturg'")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    parser.add_argument("--baseline", type=Path, help="a folder of earlier results; default: none")
    parser.add_argument("--compare", default="", help="further options of 'dramaturg compare'")
    given = parser.parse_args()
    out: Path = given.out
    code = _dramaturg(*shlex.split(given.evaluate), "--out", out).returncode
    if not (out / "results.jsonl").exists():
        return code or 1
    comparison: dict[str, Any] = {}
    gate = 0
    if given.baseline:
        compared = _dramaturg(
            "compare", given.baseline, out, "--json", *shlex.split(given.compare), stdout=subprocess.PIPE
        )
        gate = compared.returncode
        if compared.stdout:
            (out / "comparison.json").write_bytes(compared.stdout)
            comparison = json.loads(compared.stdout)
    samples = list(read_results(out))
    summary = "\n".join(_summary(samples, comparison)) + "\n"
    (out / "summary.md").write_text(summary, encoding="utf-8")
    (out / "comment.md").write_text(f"{MARK}\n{summary}", encoding="utf-8")
    _junit(samples, comparison).write(out / "junit.xml", encoding="utf-8", xml_declaration=True)
    _append("GITHUB_STEP_SUMMARY", summary)
    files = {"results": out, "comment": out / "comment.md", "junit": out / "junit.xml"}
    outputs = {"gate": comparison.get("gate", ""), **files}
    _append("GITHUB_OUTPUT", "".join(f"{name}={value}\n" for name, value in outputs.items()))
    return code or gate


def _dramaturg(*arguments: str | Path, stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dramaturg", *map(str, arguments)]
    return subprocess.run(command, check=False, stdout=stdout)  # noqa: S603 - the arguments of the job


def _append(variable: str, text: str) -> None:
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def _summary(samples: Sequence[RunSample], comparison: dict[str, Any]) -> Iterator[str]:
    """The lines of the summary: the gate with its reasons, and a table by model and measure."""
    yield "## dramaturg"
    yield ""
    if comparison:
        yield f"**{comparison['gate']}** against the baseline, margin {comparison['margin']:g}."
        yield ""
        yield from (f"- {reason.translate(_IN_MARKDOWN)}" for reason in comparison["gate_reasons"])
        yield ""
    yield "| model | measure | mean | judged | PASS | FAIL | ABSTAIN |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    groups: defaultdict[tuple[str, str], list[HarnessJudgement]] = defaultdict(list)
    for sample in samples:
        for row, one in judgements(sample):
            groups[row.model, one.criterion].append(one)
    for (model, measure), given in groups.items():
        values = [one.value for one in given if one.value is not None]
        mean = f"{sum(values) / len(values):.3f}" if values else "-"
        counts = [sum(one.outcome == outcome for one in given) for outcome in ("PASS", "FAIL", "ABSTAIN")]
        names = f"{model.translate(_IN_MARKDOWN)} | {measure.translate(_IN_MARKDOWN)}"
        yield f"| {names} | {mean} | {len(values)} of {len(given)} | {' | '.join(map(str, counts))} |"
    if failed := sum(sample.WhichOneof("result") is None for sample in samples):
        yield ""
        yield f"{failed} of {len(samples)} samples failed."


def _junit(samples: Sequence[RunSample], comparison: dict[str, Any]) -> ElementTree.ElementTree[Any]:
    """A test for each judgement, each failed sample, and the gate."""
    suite = ElementTree.Element("testsuite", name="dramaturg")
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)

    def case(group: str, name: str, outcome: str = "", message: str = "") -> None:
        made = ElementTree.SubElement(suite, "testcase", classname=_xml(group), name=_xml(name))
        counts["tests"] += 1
        if outcome:
            counts[{"failure": "failures", "error": "errors"}.get(outcome, outcome)] += 1
            ElementTree.SubElement(made, outcome, message=_xml(message))

    if comparison:
        failed = "" if comparison["gate"] == "GO" else "failure"
        case("comparison", "gate", failed, "\n".join([comparison["gate"], *comparison["gate_reasons"]]))
    for sample in samples:
        shown = view(sample)
        name = shown.sample_id or shown.title
        if sample.WhichOneof("result") is None:
            case(name, "sample", "error", shown.error)
        for row, one in judgements(sample):
            outcome = {"FAIL": "failure", "ABSTAIN": "skipped"}.get(one.outcome, "")
            case(".".join(filter(None, (name, row.candidate_id))), one.criterion, outcome, one.explanation)
    suite.attrib |= {key: str(count) for key, count in counts.items()}
    return ElementTree.ElementTree(suite)


def _xml(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)


if __name__ == "__main__":
    sys.exit(main())
