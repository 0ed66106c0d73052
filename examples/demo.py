"""``make demo``: evaluates the samples and shows the verdicts beside the planted labels.

Without a model the judges' answers are replayed from a file written for the samples; with
``OPENAI_API_KEY`` or ``OPENAI_BASE_URL``, and ``MODEL``, set, that model answers instead.

Exit codes: 0, 1 if samples failed or nothing was judged, 4 if fewer than 0.9 of the judgements were made.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from rich import box
from rich.console import Console
from rich.table import Table

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.datasets.json_lines import json_objects
from dramaturg.results.coverage import by_reason
from dramaturg.results.quantities import consumption, duration

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "examples" / "scripts"
OUT = ROOT / "out" / "demo"
CRITERIA = {
    "no_missing_steps": "missing",
    "no_redundant_steps": "redundant",
    "no_duplicate_steps": "duplicate",
    "executable": "executable",
    "satisfies_constraints": "constraints",
    "completes_goal": "goal",
    "order_correct": "order",
}
LOW_COVERAGE = 4
"""The exit code of an evaluation with fewer than 0.9 of its judgements."""
MARKS = {"OUTCOME_PASS": "pass", "OUTCOME_FAIL": "FAIL", "OUTCOME_ABSTAIN": "-"}

Labels = Mapping[tuple[str, str], Mapping[str, str]]


def main() -> int:
    """Runs the demo; returns the exit code."""
    console = Console(width=max(Console().width, 110))
    replayed = not (os.environ.get("MODEL") and ({"OPENAI_API_KEY", "OPENAI_BASE_URL"} & os.environ.keys()))
    console.print(
        "Eight tasks, four candidates each, defects planted in most of them. The judges' answers are "
        + (
            "[bold]replayed: they were written for these samples, no model was asked to judge[/]."
            if replayed
            else ""
        )
        + ("" if replayed else f"those of [bold]{os.environ['MODEL']}[/].")
    )
    # Results of an earlier demo, perhaps of another model, never stand beside new ones.
    shutil.rmtree(OUT, ignore_errors=True)
    begun = time.monotonic()
    code, summary = evaluate(replayed=replayed)
    seconds = time.monotonic() - begun
    if summary is None:
        return code
    results = list(read_lines(OUT / "results.jsonl"))
    labels = {
        (row["task_id"], row["candidate_id"]): row["labels"] for row in read_lines(SAMPLES / "labels.jsonl")
    }
    console.print(verdict_table(results, labels))
    console.print(agreement_table(results, labels))
    show_summary(console, summary, seconds, replayed=replayed)
    failed = write_report()
    if code == LOW_COVERAGE:
        console.print("[bold]Fewer than 0.9 of the judgements were made: the exit code is 4.[/]")
    return failed or code


def evaluate(*, replayed: bool) -> tuple[int, dict[str, Any] | None]:
    """Evaluates the samples through the real services.

    Returns:
        The exit code of the command, and what ``--json`` prints, or None where there are no results.
    """
    environment = dict(os.environ)
    if replayed:
        environment["DRAMATURG_CONFIG"] = str(SAMPLES / "replay.toml")
        # A ledger of its own: the demo shows the same usage every time.
        environment["DRAMATURG_GENERATION_LEDGER"] = ":memory:"
    command = [
        sys.executable,
        "-m",
        "dramaturg",
        "eval",
        "--kind",
        "scripts",
        str(SAMPLES / "tasks.jsonl"),
    ]
    with subprocess.Popen(  # noqa: S603
        [*command, "--out", str(OUT), "--json"], env=environment, cwd=ROOT, stdout=subprocess.PIPE
    ) as evaluation:
        # The evaluation would go on, and go on buying answers, without the demo.
        signal.signal(signal.SIGTERM, lambda *_: evaluation.terminate())
        output, _ = evaluation.communicate()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if evaluation.returncode not in (0, 1, LOW_COVERAGE) or not output:
        return evaluation.returncode, None
    return evaluation.returncode, json.loads(output)


def write_report() -> int:
    """Writes the report and prints its path; returns the exit code."""
    command = [sys.executable, "-m", "dramaturg", "report", str(OUT), "--title", "Eight tasks, four writers"]
    page = f"{OUT.relative_to(ROOT)}/report.html"
    return subprocess.run([*command, "-o", page], cwd=ROOT, check=False).returncode  # noqa: S603


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file."""
    yield from (value for _, value in json_objects(path))


def verdicts(results: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """The outcomes of every candidate by criterion."""
    for result in results:
        for candidate in result["candidates"]:
            outcomes = {verdict["criterion"]: verdict["outcome"] for verdict in candidate["verdicts"]}
            yield result["task"]["id"], candidate["candidateId"], outcomes


def is_right(outcome: str, label: str) -> bool:
    """Whether a PASS or FAIL agrees with the planted label."""
    return outcome == f"OUTCOME_{label.upper()}"


def verdict_table(results: list[dict[str, Any]], labels: Labels) -> Table:
    """The verdicts of each candidate; differences from the planted labels are marked."""
    table = Table(title="Verdicts (≠: differs from the planted label; -: abstained)", box=box.SIMPLE_HEAD)
    table.add_column("task", no_wrap=True)
    table.add_column("script")
    for short in CRITERIA.values():
        table.add_column(short, justify="center")
    previous = ""
    for task, candidate, outcomes in verdicts(results):
        cells = []
        for criterion in CRITERIA:
            outcome, label = outcomes[criterion], labels[task, candidate][criterion]
            color = {"OUTCOME_PASS": "green", "OUTCOME_FAIL": "red"}.get(outcome, "yellow")
            wrong = outcome != "OUTCOME_ABSTAIN" and not is_right(outcome, label)
            cells.append(f"[{color}]{MARKS[outcome]}[/]{' [bold]≠[/]' if wrong else ''}")
        table.add_row("" if task == previous else task, candidate, *cells)
        previous = task
    return table


def agreement_table(results: list[dict[str, Any]], labels: Labels) -> Table:
    """The numbers of verdicts that agree with the planted labels, differ, and abstain."""
    table = Table(title="Against the planted labels", box=box.SIMPLE_HEAD)
    table.add_column("criterion")
    for column in ("right", "wrong", "abstained"):
        table.add_column(column, justify="right")
    for criterion in CRITERIA:
        tally: Counter[str] = Counter()
        for task, candidate, outcomes in verdicts(results):
            outcome = outcomes[criterion]
            if outcome == "OUTCOME_ABSTAIN":
                tally["abstained"] += 1
            else:
                tally["right" if is_right(outcome, labels[task, candidate][criterion]) else "wrong"] += 1
        table.add_row(criterion, *(str(tally[column]) for column in ("right", "wrong", "abstained")))
    return table


def show_summary(console: Console, summary: dict[str, Any], seconds: float, *, replayed: bool) -> None:
    """Prints counts, usage, the time, the paths of the results, and next steps."""
    scripts, abstentions = summary["scripts"], summary["abstentions_by_reason"]
    whole = next(
        one for one in scripts["figures"] if one["all_models"] and not one["criterion"] and not one["tags"]
    )
    console.print(
        f"{scripts['candidate_count']} candidates, {whole['verdict_count']} verdicts: "
        f"{whole['pass_count']} PASS, {whole['fail_count']} FAIL, "
        f"{sum(abstentions.values())} ABSTAIN" + (f" ({by_reason(abstentions)})" if abstentions else ""),
        highlight=False,
    )
    usage = ParseDict(summary["usage"], Usage())
    console.print(
        f"{usage.provider_call_count} calls of a model, {usage.cache_hit_count} answers from the ledger"
        f"{consumption(usage)}, in {duration(seconds)}",
        highlight=False,
    )
    if replayed:
        console.print("[dim]The answers are replayed: these figures describe the samples, not a model.[/]")
    console.print(f"results: {OUT.relative_to(ROOT)}/results.jsonl\n", highlight=False)
    console.print(
        "Try next:\n"
        "  1. your own model:  OPENAI_BASE_URL=http://localhost:8000/v1 MODEL=my-model make demo\n"
        "  2. another judge:   .venv/bin/dramaturg eval examples/scripts/tasks.jsonl "
        "--judge critic=offline\n"
        "  3. the services:    make up, then .venv/bin/dramaturg judges --target localhost:50051\n",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
