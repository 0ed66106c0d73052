"""Measures the report of many candidates: summary, rendering, size, and the page in Chromium.

Prints one line of JSON. Needs playwright and Debian's chromium.

    python -m bench.report_page --candidates 20000

Each page is opened five times, each time in a tab without a history: ``open_seconds`` is the median,
``open_least_seconds`` the least.

``--beside inspect`` also installs inspect-ai into a temporary virtual environment, writes the same
candidates as one of its logs, and measures its viewer in the same Chromium, in turns. Its filter sees inputs
and scores only; the search of the report sees all texts. A viewer that does not show what is
waited for within two minutes has a figure that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from socket import create_server
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as PageTimeoutError

from dramaturg.api.common.v1.verdict_pb2 import Outcome
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.page import Heading, render
from tests.dramaturg.report.many import MODELS, many
from tests.dramaturg.report.samples import summarized

_INSPECT = "inspect-ai==0.3.285"
_DISTINCT = 300
_OPENINGS = 5
_LONGEST = 120
_WANTED = "Plan day 99 of"
_SHOWN = "document.querySelector('#list .row .words:not(:empty)') !== null"
"""The matrix has rows that are links, with the first words of the texts."""
_PAINTED = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
_INSPECT_SHOWN = "document.body.innerText.includes('Plan day 0 of')"
_STATUS = "document.getElementById('status').textContent"


class Opened(NamedTuple):
    """A page that is opened."""

    address: str
    shown: str
    """The expression of JavaScript that is true when it is open."""
    before: str = "about:blank"
    """The address that the tab visits before, so that its assets are loaded."""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=20_000)
    parser.add_argument("--beside", choices=["inspect"], help="a viewer that shows the same candidates")
    options = parser.parse_args()
    count = options.candidates // len(MODELS)
    samples = list(copies(count))
    figures: dict[str, float | int | str] = {"candidates": count * len(MODELS), "samples": count}

    started = perf_counter()
    summary = summarized(samples)
    figures["summary_seconds"] = round(perf_counter() - started, 2)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "report.html"
        started = perf_counter()
        with file.open("w", encoding="utf-8") as page:
            for piece in render(Heading("Many"), summary, samples):
                page.write(piece)
        figures["render_seconds"] = round(perf_counter() - started, 2)
        figures["megabytes"] = round(file.stat().st_size / 1e6, 2)
        pages = {"": Opened(file.as_uri(), _SHOWN)}
        if options.beside:
            logs, python = Path(folder) / "logs", inspect_python(Path(folder))
            figures["inspect_write_seconds"] = inspect_log(python, samples, logs)
            address = stack.enter_context(inspect_viewer(python, logs))
            pages["inspect_"] = Opened(f"{address}#/logs/scripts.eval/samples/", _INSPECT_SHOWN, address)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        figures |= openings(browser, pages)
        figures |= in_browser(browser, file)
        if options.beside:
            figures["inspect_find_seconds"] = inspect_find(browser, pages["inspect_"])
            for measure in ("open", "find"):
                own, other = figures[f"{measure}_seconds"], figures[f"inspect_{measure}_seconds"]
                if isinstance(own, float) and isinstance(other, float):
                    figures[f"inspect_{measure}_ratio"] = round(other / own, 1)
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


def openings(browser: Browser, pages: Mapping[str, Opened]) -> dict[str, float | str]:
    """The median and the least of the seconds to open each page, by the prefix of its figures.

    A page is open when it is read and what is looked for is painted: of the report the matrix, with texts and
    links.
    """
    taken: dict[str, list[float]] = {name: [] for name in pages}
    for name, page in [*pages.items()] * _OPENINGS:
        if _LONGEST not in taken[name]:
            taken[name].append(opening(browser, page))
    found: dict[str, float | str] = {}
    for name, seconds in taken.items():
        never = _LONGEST in seconds
        found[f"{name}open_seconds"] = told(_LONGEST if never else median(seconds))
        found[f"{name}open_least_seconds"] = told(min(seconds))
    return found


def opening(browser: Browser, opened: Opened) -> float:
    """The seconds to open a page. ``_LONGEST``: it does not open within them."""
    with closing(browser.new_page()) as page:
        page.set_default_timeout(1000 * _LONGEST)
        for before in (opened.before, "about:blank"):
            page.goto(before)
        begin = perf_counter()
        try:
            page.goto(opened.address)
            until(page, opened.shown)
        except (TimeoutError, PageTimeoutError):
            return _LONGEST
        page.evaluate(_PAINTED)
        return perf_counter() - begin


def told(seconds: float) -> float | str:
    """A figure of seconds, or that what was waited for did not come."""
    return f"not within {_LONGEST} s" if seconds == _LONGEST else round(seconds, 3)


def in_browser(browser: Browser, file: Path) -> dict[str, float]:
    """Seconds from a click to the worst model's first fault, to filter, to a sample, to search."""
    page, found = browser.new_page(), dict[str, float]()

    def measure(name: str, target: str, done: str) -> None:
        begin = perf_counter()
        page.evaluate(f"location.hash = {json.dumps(target)}")
        until(page, done)
        found[f"{name}_seconds"] = round(perf_counter() - begin, 3)

    page.goto(file.as_uri())
    until(page, _SHOWN)
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


def inspect_python(folder: Path) -> Path:
    """A Python that has Inspect."""
    python = folder / "inspect" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--quiet", _INSPECT], check=True)
    return python


def inspect_log(python: Path, samples: Sequence[RunSample], logs: Path) -> float:
    """The seconds to write a log of the candidates."""
    logs.mkdir()
    rows = logs / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in inspect_rows(samples)), encoding="utf-8")
    begin = perf_counter()
    writer = Path(__file__).parent / "viewers" / "inspect_log.py"
    subprocess.run([python, writer, rows, logs / "scripts.eval"], check=True)
    rows.unlink()
    return round(perf_counter() - begin, 2)


@contextmanager
def inspect_viewer(python: Path, logs: Path) -> Iterator[str]:
    """Starts the viewer of a folder of logs; yields its address when it answers."""
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    viewer = subprocess.Popen(
        [python.with_name("inspect"), "view", "start", "--log-dir", logs, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "XDG_DATA_HOME": str(logs)},
    )
    try:
        address, end = f"http://127.0.0.1:{port}/", perf_counter() + _LONGEST
        while not answers(address):
            if perf_counter() > end:
                raise TimeoutError(address)
            sleep(0.05)
        yield address
    finally:
        viewer.kill()
        viewer.wait()


def inspect_find(browser: Browser, opened: Opened) -> float | str:
    """The seconds of Inspect's viewer to find a text."""
    with closing(browser.new_page()) as page:
        page.set_default_timeout(1000 * _LONGEST)
        try:
            page.goto(opened.address)
            until(page, opened.shown)
            page.locator(".cm-content").click()
            begin = perf_counter()
            page.keyboard.insert_text(f'input_contains("{_WANTED}")')
            # The input line has less of the goal than a row.
            until(page, f"document.body.innerText.includes('{_WANTED} a trip')")
        except (TimeoutError, PageTimeoutError):
            return told(_LONGEST)
        return told(perf_counter() - begin)


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


def answers(address: str) -> bool:
    """Whether a server answers."""
    try:
        urlopen(address).close()
    except URLError:
        return False
    return True


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
