"""Measures the report of many candidates: summary, rendering, size, and the page in Chromium.

Prints one line of JSON. Needs playwright and Debian's chromium.

    python bench/report_page.py --candidates 20000
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from playwright.sync_api import Page, sync_playwright

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.groupings import find_groupings
from dramaturg.report.page import Heading, render
from tests.dramaturg.report.many import MODELS, many
from tests.dramaturg.report.samples import summarized

_DISTINCT = 300
_STATUS = "document.getElementById('status').textContent"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=20_000)
    count = parser.parse_args().candidates // len(MODELS)
    samples = list(copies(count))
    figures: dict[str, float | int] = {"candidates": count * len(MODELS), "samples": count}

    started = perf_counter()
    summary = summarized(samples)
    figures["summary_seconds"] = round(perf_counter() - started, 2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        started = perf_counter()
        with file.open("w", encoding="utf-8") as page:
            for piece in render(Heading("Many", notes=find_groupings(samples).notes()), summary, samples):
                page.write(piece)
        figures["render_seconds"] = round(perf_counter() - started, 2)
        figures["megabytes"] = round(file.stat().st_size / 1e6, 2)
        figures |= in_browser(file)
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


def in_browser(file: Path) -> dict[str, float]:
    """Seconds to open, to filter, to open a sample, and to search all texts."""
    found: dict[str, float] = {}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        begin = perf_counter()
        page.goto(file.as_uri())
        until(page, f"{_STATUS}.endsWith('samples')")
        found["open_seconds"] = round(perf_counter() - begin, 2)
        begin = perf_counter()
        page.evaluate("location.hash = '#model=writer-tiny&measure=executable&outcome=fail&tag.level=hard'")
        until(page, f"{_STATUS}.includes(' of ')")
        found["filter_seconds"] = round(perf_counter() - begin, 2)
        begin = perf_counter()
        page.evaluate("location.hash = '#sample=99'")
        until(page, "document.querySelector('details.sample[open] .verdicts') !== null")
        found["sample_seconds"] = round(perf_counter() - begin, 2)
        begin = perf_counter()
        page.evaluate("location.hash = '#q=no such text anywhere'")
        until(page, f"{_STATUS}.startsWith('0 of')")
        found["search_seconds"] = round(perf_counter() - begin, 2)
        browser.close()
    return found


def until(page: Page, expression: str) -> None:
    """Waits until an expression of JavaScript is true."""
    while not page.evaluate(expression):
        page.wait_for_timeout(5)


if __name__ == "__main__":
    main()
