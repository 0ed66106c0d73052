"""The page in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dramaturg.report.aggregator import ReportAggregator
from dramaturg.report.page import Heading, render
from tests.dramaturg.report.samples import RESULTS, sample

pytestmark = pytest.mark.slow

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def dom(page: Path, profile: Path) -> str:
    """The page as it stands after its script ran."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on the path: install Debian's chromium to try the page in a browser")
    command = [browser, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return finished.stdout


def test_the_filter_runs_and_judged_scripts_do_not(tmp_path: Path) -> None:
    samples = [sample(kind, place) for place, kind in enumerate(sorted(RESULTS))]
    scripts = next(one for one in samples if one.WhichOneof("result") == "scripts")
    scripts.scripts.task.goal = "<script>document.title = 'broken'</script><b id=injected>soup</b>"
    aggregator = ReportAggregator()
    for one in samples:
        aggregator.add(one)
    page = tmp_path / "report.html"
    page.write_text("".join(render(Heading("A title"), aggregator, samples)), encoding="utf-8")
    shown = dom(page, tmp_path / "profile")
    assert "<title>A title</title>" in shown
    assert "5 of 5 shown" in shown
    assert not re.search(r"<b id=.?injected", shown)
