"""Makes the pictures of docs/console.md: ``python -m tests.gateway.console.screenshots docs/images``.

Each picture is the page of a console with made-up results, light and dark, with a reduced palette.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from PIL import Image

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.judge.verdicts import passed
from dramaturg.testing import FakeJudge, in_thread, serve
from gateway.settings import JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.dramaturg.report.many import many
from tests.support.browser import Tab, browser
from tests.support.console import Consoled, serve_console
from tests.support.labelling import finished_run

WIDTH, HEIGHT = 1000, 640
COLORS = 128
"""The colours of a picture's palette."""
MAX_BYTES = 60_000
"""The most bytes of a picture."""


@asynccontextmanager
async def _console(folder: Path) -> AsyncIterator[Consoled]:
    async with AsyncExitStack() as stack:
        alignment = await stack.enter_async_context(
            serve(*await stack.enter_async_context(AlignmentApp().open()))
        )
        entries = [JudgeEntry(role="alignment", name="built-in", target=alignment.target)]
        for role, name, version in (
            ("critic", "llm", "1.4.0"),
            ("critic", "partner", "2.1.0"),
            ("execute", "llm", "1.4.0"),
        ):
            judge = FakeJudge(lambda *_: [passed("fluent")], name=f"{name}-{role}", version=version)
            server = await stack.enter_async_context(serve(judge.contract()))
            entries.append(
                JudgeEntry(
                    role=role, name=name, target=server.target, default=name == "llm", owner="evaluation"
                )
            )
        entries.append(
            JudgeEntry.model_validate(
                {
                    "role": "critic",
                    "name": "both",
                    "panel": {"rule": "unanimous", "quorum": 2, "members": ["llm", "partner"]},
                }
            )
        )
        entries.append(JudgeEntry(role="execute", name="remote", target="127.0.0.1:1", owner="partner"))
        yield await stack.enter_async_context(serve_console(folder, entries))


def _fill(console: Consoled) -> None:
    before, after = list(many("scripts", 24)), list(many("scripts", 24))
    for sample in after:
        for candidate in sample.scripts.candidates:
            for assessed in candidate.assessments:
                assessed.assessment.provenance.version = "1.5.0"
            for verdict in candidate.verdicts:
                if verdict.outcome == OUTCOME_PASS and candidate.model == "writer-large" and sample.index < 9:
                    verdict.outcome = OUTCOME_FAIL
    finished_run(console.store, before, run_id="before", name="Judge 1.4")
    finished_run(console.store, after, run_id="after", name="Judge 1.5")


def _comparison(seen: Tab) -> None:
    seen.page.goto("/console/compare?baseline=before&run=after")
    seen.until("document.getElementById('status')?.textContent.includes('samples')")


def _labelling(seen: Tab) -> None:
    seen.page.goto("/console/labels/new?run=before")
    seen.page.fill("#field-name", "Pilot of two annotators")
    seen.page.fill("input[name=sample_size]", "12")
    seen.page.click("#create")
    seen.page.wait_for_selector("#start")
    address = seen.page.url
    for annotator, keys in (("anna", "ppfpppfppfpp"), ("ben", "ppfpfpfpp")):
        seen.page.goto(f"{address}/queue?annotator={annotator}")
        for place, key in enumerate(keys, start=1):
            seen.page.locator("h1", has_text=f"Item {place} of").wait_for()
            seen.page.wait_for_load_state()
            seen.page.keyboard.press(key)
    seen.page.locator("h1", has_text="Item 10 of").wait_for()


def _judges(seen: Tab) -> None:
    seen.page.goto("/console/judges")


PAGES: Mapping[str, Callable[[Tab], None]] = {
    "comparison": _comparison,
    "labelling": _labelling,
    "judges": _judges,
}


def main(folder: Path) -> None:
    """Writes the pictures.

    Args:
        folder: Where they are written.
    """
    # The console of the tests has a store of runs of its own.
    os.environ["DRAMATURG_RUNS_ENABLED"] = "false"
    for scheme in ("light", "dark"):
        with tempfile.TemporaryDirectory() as name, in_thread(_console(Path(name))) as console:
            _fill(console)
            with browser(scheme=scheme, width=WIDTH, base_url=console.url) as opened:
                seen = Tab(opened.new_page(), console.url)
                seen.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
                for page, show in PAGES.items():
                    show(seen)
                    picture = Image.open(io.BytesIO(seen.page.screenshot()))
                    file = folder / f"{page}-{scheme}.png"
                    picture.convert("RGB").quantize(COLORS).save(file, optimize=True)
                    if file.stat().st_size > MAX_BYTES:
                        sys.exit(f"{file} has {file.stat().st_size:,} bytes; the most are {MAX_BYTES:,}")
                if seen.faults:
                    sys.exit("\n".join(seen.faults))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
