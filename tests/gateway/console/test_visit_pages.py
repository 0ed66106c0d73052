"""Every page of the console."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from dramaturg.testing import in_thread
from gateway.console import comparison, evaluation, home, judges, labels, new_run, runs
from tests.gateway.console.screenshots import ALL, label_set, serve_filled
from tests.support.browser import AXE, Tab, browser
from tests.support.console import Consoled

FIRST = re.compile(r"|labels|judges|evaluate(/\w+)?")
"""The pages of the navigation: from them there is no way back."""
NO_PAGES = re.compile(r"/part$|/report$|/\(\?P<name>")
"""The addresses of parts of pages, of reports in a frame, and of files."""
PARTS = 4
"""Into how many tests a walk is divided: axe-core takes seconds a page."""


CUT_HINTS = """[...document.querySelectorAll("input[placeholder]")].filter((one) => {
  const context = document.createElement("canvas").getContext("2d"), style = getComputedStyle(one);
  context.font = style.font;
  const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return one.checkVisibility() && context.measureText(one.placeholder).width > room;
}).map((one) => one.placeholder)"""


@pytest.fixture
def filled(tmp_path: Path, shared_browser: None) -> Iterator[Consoled]:
    """A console with runs, labels and judges."""
    with in_thread(serve_filled(tmp_path)) as console:
        yield console


def test_the_walk_visits_every_page() -> None:
    visited = [path.format(set=f"labels/{uuid4()}").partition("?")[0] for path in [*ALL.values(), "evaluate"]]
    for module in (home, new_run, runs, comparison, judges, evaluation, labels):
        for method, pattern, _ in module.ROUTES:
            if method == "GET" and not NO_PAGES.search(f"/{pattern}"):
                assert any(re.fullmatch(pattern, path) for path in visited), pattern


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
@pytest.mark.parametrize("part", range(PARTS))
def test_each_page_opens_without_a_fault(filled: Consoled, part: int, scheme: str, width: int) -> None:
    with browser(scheme=scheme, width=width, base_url=filled.url) as opened:
        seen = Tab(opened.new_page(), filled.url)
        paths = [*ALL.values()][part::PARTS]
        made = label_set(seen).partition("/console/")[2] if any("{set}" in path for path in paths) else ""
        for path in paths:
            address = path.format(set=made)
            seen.page.goto(f"/console/{address}")
            assert seen.page.inner_text("h1"), address
            assert seen.page.locator(".primary:visible").count() <= 1, address
            back = seen.page.locator(".back a").evaluate_all("all => all.map((one) => one.pathname)")
            assert bool(back) != bool(FIRST.fullmatch(address)), address
            assert f"/console/{address}" not in back
            # What destroys stands apart, and is asked about.
            for one in seen.page.locator(".danger").all():
                assert one.get_attribute("data-confirm"), address
                assert one.evaluate("(one) => one.closest('.apart') !== null"), address
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, address
            # No hint in a field is cut off.
            assert seen.page.evaluate(CUT_HINTS) == [], address
            # No table has a part that is out of view.
            assert seen.page.evaluate(
                "[...document.querySelectorAll('.wide')].every(one => one.scrollWidth <= one.clientWidth)"
            ), address
            if AXE.is_file():
                assert not seen.violations(colours_only=scheme == "dark"), address
        assert not seen.faults
