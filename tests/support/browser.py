"""Debian's Chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).resolve().parents[2] / ".tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
"""The accessibility rules of axe-core, which ``make test-report`` installs."""


class Tab:
    """A tab of the browser, with what it logs and requests.

    Args:
        page: The tab.
        origin: What the addresses of permitted requests begin with.
    """

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.faults: list[str] = []
        self._origin = origin
        page.on("console", self._log)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", self._request)

    def _log(self, said: ConsoleMessage) -> None:
        if said.type in {"error", "warning"}:
            self.faults.append(said.text)

    def _request(self, sent: Request) -> None:
        if not sent.url.startswith((self._origin, "data:,")):
            self.faults.append(sent.url)

    def until(self, expression: str) -> None:
        """Waits until an expression of JavaScript is true. The policy of the page forbids playwright to."""
        deadline = monotonic() + 30
        while not self.page.evaluate(expression):
            assert monotonic() < deadline, expression
            self.page.wait_for_timeout(20)

    def violations(self, *, colours_only: bool = False) -> Sequence[str]:
        """The faults that axe-core finds, of any impact.

        Args:
            colours_only: Whether only the rules that a theme can break are tried.
        """
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        options = {"runOnly": ["color-contrast", "link-in-text-block"]} if colours_only else {}
        found = self.page.evaluate("options => axe.run(options)", options)["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]


_running: list[Browser] = []


@contextmanager
def chromium() -> Iterator[Browser]:
    """One process of the browser for all that is opened within the block.

    The tests of a module may share it, since its start takes most of the time of a test; beside it the same
    thread runs no event loop. Skips the test without playwright or Chromium.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    if EXECUTABLE is None:
        pytest.skip("no Chromium on the path: install Debian's chromium to try the page in a browser")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
        _running.append(opened)
        try:
            yield opened
        finally:
            _running.remove(opened)
            opened.close()


@contextmanager
def tab(url: str, **options: Any) -> Iterator[Tab]:
    """A tab of a browser of its own, which requests addresses below ``url`` alone.

    Args:
        url: The address.
        options: As of ``browser``.
    """
    with browser(**options) as opened:
        yield Tab(opened.new_page(), url)


@contextmanager
def browser(
    *, width: int = 1280, scheme: Any = "light", scripts: bool = True, base_url: str | None = None
) -> Iterator[BrowserContext]:
    """A browser without a history. Skips the test without playwright or Chromium."""
    with nullcontext(_running[-1]) if _running else chromium() as opened:
        context = opened.new_context(
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
            java_script_enabled=scripts,
            base_url=base_url,
        )
        yield context
        context.close()
