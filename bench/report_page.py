"""Measures the report of many candidates: summary, rendering, size, and the page in Chromium.

Prints one line of JSON. Needs playwright and Debian's chromium.

    python -m bench.report_page --candidates 20000

``--beside inspect`` also installs inspect-ai into a temporary virtual environment, writes the same
candidates as one of its logs, and measures its viewer in the same Chromium. Its filter sees inputs and
scores only; the search of the report sees all texts. Its log of 20,000 candidates takes four minutes to write
on two cores without other work, and more beside it: compare with ``--candidates 2000`` there. A viewer that
does not show the candidates within two minutes is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from socket import create_server
from time import perf_counter

from playwright.sync_api import Browser, Error, Page, sync_playwright

from dramaturg.api.common.v1.verdict_pb2 import Outcome
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.page import Heading, render
from tests.dramaturg.report.many import MODELS, many
from tests.dramaturg.report.samples import summarized

_INSPECT = "inspect-ai==0.3.285"
_DISTINCT = 300
_LONGEST = 120
_WANTED = "Plan day 99 of"
_SHOWN = "document.querySelector('#list .row .words:not(:empty)') !== null"
"""The matrix has rows that are links, with the first words of the texts."""
_PAINTED = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
_STATUS = "document.getElementById('status').textContent"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=20_000)
    parser.add_argument("--beside", choices=["inspect"], help="a viewer that shows the same candidates")
    options = parser.parse_args()
    count = options.candidates // len(MODELS)
    samples = list(copies(count))
    figures: dict[str, float | int] = {"candidates": count * len(MODELS), "samples": count}

    started = perf_counter()
    summary = summarized(samples)
    figures["summary_seconds"] = round(perf_counter() - started, 2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        started = perf_counter()
        with file.open("w", encoding="utf-8") as page:
            for piece in render(Heading("Many"), summary, samples):
                page.write(piece)
        figures["render_seconds"] = round(perf_counter() - started, 2)
        figures["megabytes"] = round(file.stat().st_size / 1e6, 2)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            figures |= in_browser(browser, file)
            if options.beside:
                figures |= inspect_in_browser(browser, samples, Path(folder))
                for measure in ("open_seconds", "find_seconds"):
                    ratio = figures[f"inspect_{measure}"] / figures[measure]
                    figures[f"inspect_{measure.removesuffix('_seconds')}_ratio"] = round(ratio, 1)
            browser.close()
    print(json.dumps(figures))


def copies(count: int) -> Iterator[RunSample]:
    """Samples with several candidates; the texts of every ``_DISTINCT``th are equal but for the ids."""
    distinct = list(many("scripts", _DISTINCT))
    for place in range(count):
        made = RunSample()
        made.CopyFrom(distinct[place % _DISTINCT])
        made.index, made.sample_id, made.scripts.task.id = place, f"s{place}", f"t{place}"
        made.scripts.task.goal = f"Plan day {place} of a trip on foot"
        yield made


def in_browser(browser: Browser, file: Path) -> dict[str, float]:
    """Seconds to open, from a click to the worst model's first fault, to filter, to a sample, to search.

    A page is open when the file is read and its matrix is painted, with texts and links.
    """
    page, found = browser.new_page(), dict[str, float]()

    def measure(name: str, target: str, done: str) -> None:
        begin = perf_counter()
        page.evaluate(f"location.hash = {json.dumps(target)}")
        until(page, done)
        found[f"{name}_seconds"] = round(perf_counter() - begin, 3)

    begin = perf_counter()
    page.goto(file.as_uri())
    until(page, _SHOWN)
    page.evaluate(_PAINTED)
    found["open_seconds"] = round(perf_counter() - begin, 3)
    begin = perf_counter()
    page.locator("#failures a").click()
    until(page, "document.querySelector('#one details[open] .at-fault') !== null")
    found["first_failure_seconds"] = round(perf_counter() - begin, 3)
    measure(
        "filter",
        "#model=writer-tiny&measure=executable&outcome=fail&tag.level=hard",
        f"{_STATUS}.includes(' of ')",
    )
    measure("sample", "#sample=99", "document.querySelector('#one .verdicts') !== null")
    measure("search", "#q=no such text anywhere", f"{_STATUS}.startsWith('0 of')")
    measure("find", f"#q={_WANTED}", f"{_STATUS}.startsWith('1 of')")
    page.close()
    return found


def inspect_in_browser(browser: Browser, samples: Sequence[RunSample], folder: Path) -> dict[str, float]:
    """Seconds of Inspect: to write a log of the candidates, to open it in its viewer, to find a text."""
    python = folder / "inspect" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--quiet", _INSPECT], check=True)
    rows, logs = folder / "rows.jsonl", folder / "logs"
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in inspect_rows(samples)), encoding="utf-8")
    logs.mkdir()
    begin = perf_counter()
    subprocess.run(
        [python, Path(__file__).parent / "viewers" / "inspect_log.py", rows, logs / "scripts.eval"],
        check=True,
    )
    found = {"inspect_write_seconds": round(perf_counter() - begin, 2)}
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    viewer = subprocess.Popen(
        [python.with_name("inspect"), "view", "start", "--log-dir", logs, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "XDG_DATA_HOME": str(folder)},
    )
    page = browser.new_page()
    try:
        address = f"http://127.0.0.1:{port}/"
        answers(page, address)
        page.goto("about:blank")
        begin = perf_counter()
        page.goto(f"{address}#/logs/scripts.eval/samples/")
        until(page, "document.body.innerText.includes('Plan day 0 of')")
        found["inspect_open_seconds"] = round(perf_counter() - begin, 3)
        page.locator(".cm-content").click()
        begin = perf_counter()
        page.keyboard.insert_text(f'input_contains("{_WANTED}")')
        # The input line has less of the goal than a row.
        until(page, f"document.body.innerText.includes('{_WANTED} a trip')")
        found["inspect_find_seconds"] = round(perf_counter() - begin, 3)
    finally:
        page.close()
        viewer.terminate()
        viewer.wait()
    return found


def inspect_rows(samples: Sequence[RunSample]) -> Iterator[dict[str, object]]:
    """The candidates, as ``bench/viewers/inspect_log.py`` reads them."""
    for sample in samples:
        result = sample.scripts
        for candidate in result.candidates:
            yield {
                "id": f"{sample.sample_id}-{candidate.candidate_id}",
                "goal": result.task.goal,
                "gold": "\n".join(step.text for step in result.gold_answer.script.steps),
                "model": candidate.model,
                "script": "\n".join(step.text for step in candidate.script.steps),
                "verdicts": {
                    verdict.criterion: (Outcome.Name(verdict.outcome), verdict.rationale)
                    for verdict in candidate.verdicts
                },
            }


def answers(page: Page, address: str) -> None:
    """Waits until a server answers."""
    while True:
        try:
            page.goto(address)
        except Error:
            page.wait_for_timeout(50)
        else:
            return


def until(page: Page, expression: str) -> None:
    """Waits until an expression of JavaScript is true.

    Raises:
        TimeoutError: It is not within ``_LONGEST`` seconds.
    """
    end = perf_counter() + _LONGEST
    while not page.evaluate(expression):
        if perf_counter() > end:
            raise TimeoutError(expression)
        page.wait_for_timeout(5)


if __name__ == "__main__":
    main()
