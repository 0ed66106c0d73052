"""The report in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.browser import Tab, browser

if TYPE_CHECKING:
    from playwright.sync_api import Page


class Visit(Tab):
    """A report in the browser."""

    def __init__(self, page: Page, file: Path, *, scripts: bool) -> None:
        super().__init__(page, "file:")
        self.file = file
        self._scripts = scripts
        self.open()

    def open(self, fragment: str = "") -> None:
        """Opens the page anew with a fragment."""
        self.page.goto("about:blank")
        self.page.goto(self.file.as_uri() + fragment)
        if self._scripts:
            self.settle()

    def settle(self) -> None:
        """Waits until the list of samples is shown."""
        self.until("document.getElementById('status').textContent.includes('samples')")

    def status(self) -> str:
        """The sentence on how many samples are shown."""
        return self.page.inner_text("#status")


@contextmanager
def visit(file: Path, *, width: int = 1280, scheme: str = "light", scripts: bool = True) -> Iterator[Visit]:
    """Opens a report in the browser. Skips the test without playwright or Chromium."""
    with browser(width=width, scheme=scheme, scripts=scripts) as opened:
        yield Visit(opened.new_page(), file, scripts=scripts)
