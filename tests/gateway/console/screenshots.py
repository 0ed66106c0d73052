"""Makes the pictures of the documents, after ``make demo``.

    python -m tests.gateway.console.screenshots docs/images
    python -m tests.gateway.console.screenshots --look FOLDER

They are the report of the demonstration, the page of a run of its samples with replayed answers, and pages of
a console with made-up results, each light and dark, with a reduced palette. ``--look``
writes every page of the console in both themes and at 390 pixels, to be looked at.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from PIL import Image

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec, ScriptsRunOptions
from dramaturg.client import DramaturgClient
from dramaturg.judge.verdicts import passed
from dramaturg.testing import FakeJudge, in_thread, serve
from gateway.console.evaluation import KINDS
from gateway.settings import JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.dramaturg.report.many import many
from tests.support.browser import Tab, browser
from tests.support.command_line import ROOT
from tests.support.console import Consoled, serve_console
from tests.support.labelling import finished_run, press_keys
from tests.support.ports import free_port
from tests.support.processes import ServiceProcess

WIDTH, HEIGHT = 1000, 640
REPORT_WIDTH, REPORT_HEIGHT = 1280, 690
COLORS = 128
"""The colours of a picture's palette."""
MAX_BYTES = 60_000
"""The most bytes of a picture."""
REPORT = ROOT / "out" / "demo" / "report.html"
FAULT = "measure=no_duplicate_steps&outcome=fail&open=first"
"""The fragment of the report that opens a sample with a fault in place."""
SAMPLES = ROOT / "examples" / "scripts"


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
    _wait_for_report(seen)


def _wait_for_report(seen: Tab) -> None:
    seen.page.frame_locator("iframe.report").locator("#status", has_text="samples").wait_for()


def _labelling(seen: Tab) -> None:
    seen.page.goto("/console/labels/new?run=before")
    seen.page.fill("#field-name", "Pilot of two annotators")
    seen.page.fill("input[name=sample_size]", "12")
    seen.page.click("#create")
    seen.page.wait_for_selector("#start")
    address = seen.page.url
    for annotator, keys in (("anna", "ppfpppfppfpp"), ("ben", "ppfpfpfpp")):
        seen.page.goto(f"{address}/queue?annotator={annotator}")
        press_keys(seen, keys)
    seen.page.locator("h1", has_text="Item 10 of").wait_for()


def _judges(seen: Tab) -> None:
    seen.page.goto("/console/judges")


PAGES: Mapping[str, Callable[[Tab], None]] = {
    "comparison": _comparison,
    "labelling": _labelling,
    "judges": _judges,
}


@asynccontextmanager
async def _evaluated_samples(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Evaluates the samples of the demonstration as a run; yields its address and path."""
    port = free_port()
    environment = {
        "DRAMATURG_CONFIG": str(SAMPLES / "replay.toml"),
        "DRAMATURG_GENERATION_LEDGER": ":memory:",
        "DRAMATURG_RUNS_URL": f"sqlite:///{folder / 'runs.sqlite3'}",
        "DRAMATURG_GATEWAY_HTTP__PORT": str(port),
    }
    process = ServiceProcess("dramaturg", folder, environment, "up")
    await process.start()
    try:
        async with DramaturgClient(process.target) as client:
            spec = RunSpec(display_name="Eight tasks, four writers", scripts=ScriptsRunOptions())
            spec.dataset.content = (SAMPLES / "tasks.jsonl").read_bytes()
            created = await client.runs.create(spec)
            async for _ in client.runs.watch(created.id):
                pass
        yield f"http://127.0.0.1:{port}", f"/console/runs/{created.id}"
    finally:
        await process.stop()


@contextmanager
def _tab(scheme: str, origin: str, width: int = WIDTH, height: int = HEIGHT) -> Iterator[Tab]:
    with browser(scheme=scheme, width=width, base_url=origin) as opened:
        seen = Tab(opened.new_page(), origin)
        seen.page.set_viewport_size({"width": width, "height": height})
        yield seen
        if seen.faults:
            sys.exit("\n".join(seen.faults))


def _save(seen: Tab, file: Path) -> None:
    picture = Image.open(io.BytesIO(seen.page.screenshot()))
    picture.convert("RGB").quantize(COLORS).save(file, optimize=True)
    if file.stat().st_size > MAX_BYTES:
        sys.exit(f"{file} has {file.stat().st_size:,} bytes; the most are {MAX_BYTES:,}")


def main(folder: Path) -> None:
    """Writes the pictures.

    Args:
        folder: Where they are written.
    """
    schemes = ("light", "dark")
    with tempfile.TemporaryDirectory() as name, in_thread(_evaluated_samples(Path(name))) as run:
        for scheme in schemes:
            with _tab(scheme, run[0]) as seen:
                seen.page.goto(run[1])
                _wait_for_report(seen)
                _save(seen, folder / f"run-{scheme}.png")
    for scheme in schemes:
        with _tab(scheme, REPORT.as_uri(), REPORT_WIDTH, REPORT_HEIGHT) as seen:
            seen.page.goto(REPORT.as_uri())
            _save(seen, folder / f"report-{scheme}.png")
            seen.page.goto(f"{REPORT.as_uri()}#{FAULT}")
            seen.page.locator("details[open] .at-fault").first.wait_for()
            seen.page.locator("details[open] .at-fault").first.evaluate(
                "one => one.scrollIntoView({block: 'center'})"
            )
            _save(seen, folder / f"sample-{scheme}.png")
    # The console of the tests has a store of runs of its own.
    os.environ["DRAMATURG_RUNS_ENABLED"] = "false"
    for scheme in schemes:
        with tempfile.TemporaryDirectory() as name, in_thread(_console(Path(name))) as console:
            _fill(console)
            with _tab(scheme, console.url) as seen:
                for title, show in PAGES.items():
                    show(seen)
                    _save(seen, folder / f"{title}-{scheme}.png")


ALL = {
    "runs": "",
    "run": "runs/after",
    "new-run": "runs/new",
    "compare": "runs/after/compare",
    "comparison": "compare?baseline=before&run=after",
    "labels": "labels",
    "new-label-set": "labels/new?run=after",
    "judges": "judges",
    "judge": "judges/critic/both",
    "new-judge": "judges/new/server",
    "new-panel": "judges/new/panel",
    **{f"evaluate-{kind}": f"evaluate/{kind}" for kind in KINDS},
}
"""Every page, by the name of its picture."""


def look(folder: Path) -> None:
    """Writes pictures of every page in both themes and at 390 pixels.

    Args:
        folder: Where they are written.
    """
    os.environ["DRAMATURG_RUNS_ENABLED"] = "false"
    with tempfile.TemporaryDirectory() as name, in_thread(_console(Path(name))) as console:
        _fill(console)
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)):
            with _tab(scheme, console.url, width, HEIGHT) as seen:
                for title, path in ALL.items():
                    seen.page.goto(f"/console/{path}")
                    if seen.page.locator("iframe.report").count():
                        _wait_for_report(seen)
                    seen.page.screenshot(path=folder / f"{title}-{scheme}-{width}.png", full_page=True)


if __name__ == "__main__":
    if sys.argv[1] == "--look":
        look(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
