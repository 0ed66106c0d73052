"""Debian's Chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page, Request

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).resolve().parents[3] / ".tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
"""The accessibility rules of axe-core, which ``make test-report`` installs."""


class Visit:
    """A page in the browser, with what it logs and requests."""

    def __init__(self, page: Page, file: Path, *, scripts: bool) -> None:
        self.page = page
        self.file = file
        self.faults: list[str] = []
        self._scripts = scripts
        page.on("console", self._log)
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("request", self._request)
        self.open()

    def _note(self, fault: str) -> None:
        self.faults.append(fault)

    def _log(self, said: ConsoleMessage) -> None:
        if said.type in {"error", "warning"}:
            self._note(said.text)

    def _request(self, sent: Request) -> None:
        if not sent.url.startswith("file:"):
            self._note(sent.url)

    def open(self, fragment: str = "") -> None:
        """Opens the page anew with a fragment."""
        self.page.goto("about:blank")
        self.page.goto(self.file.as_uri() + fragment)
        if self._scripts:
            self.settle()

    def settle(self) -> None:
        """Waits until the list of samples is shown."""
        self.until("document.getElementById('status').textContent.includes('samples')")

    def until(self, expression: str) -> None:
        """Waits until an expression of JavaScript is true. The policy of the page forbids playwright to."""
        deadline = monotonic() + 30
        while not self.page.evaluate(expression):
            assert monotonic() < deadline, expression
            self.page.wait_for_timeout(20)

    def status(self) -> str:
        """The sentence on how many samples are shown."""
        return self.page.inner_text("#status")

    def serious_faults(self) -> Sequence[str]:
        """The serious and critical faults that axe-core finds."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run()")["violations"]
        return [
            f"{one['id']}: {one['nodes'][0]['html']}"
            for one in found
            if one["impact"] in {"serious", "critical"}
        ]


@contextmanager
def visit(file: Path, *, width: int = 1280, scheme: str = "light", scripts: bool = True) -> Iterator[Visit]:
    """Opens a page in the browser. Skips the test without playwright or Chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    if EXECUTABLE is None:
        pytest.skip("no Chromium on the path: install Debian's chromium to try the page in a browser")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, java_script_enabled=scripts
        )
        page = context.new_page()
        yield Visit(page, file, scripts=scripts)
        browser.close()
