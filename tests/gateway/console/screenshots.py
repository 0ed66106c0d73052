"""Makes the pictures of the documents, after ``make demo``.

    python -m tests.gateway.console.screenshots docs/images
    python -m tests.gateway.console.screenshots --look FOLDER

They are the report of the demonstration with a sample of it, and pages of a console with made-up results,
each light and dark, with a reduced palette. ``--look`` writes every page of the console in both themes and
at 390 pixels, to be looked at.
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
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RunSpec,
    ScriptsRunOptions,
)
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
from tests.support.runs import TIMED_OUT, create, judged

WIDTH, HEIGHT = 1280, 690
COLORS = 128
"""The colours of a picture's palette."""
MAX_BYTES = 60_000
"""The most bytes of a picture."""
REPORT = ROOT / "out" / "demo" / "report.html"
FAULT = "measure=no_duplicate_steps&outcome=fail&open=first"
"""The fragment of the report that opens a sample with a fault in place."""
SAMPLES = ROOT / "examples" / "scripts"


@asynccontextmanager
async def serve_filled(folder: Path) -> AsyncIterator[Consoled]:
    """Serves a console with judges, runs of several kinds, and one that goes on."""
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
        shadow = {"role": "execute", "name": "next", "target": entries[3].target, "shadow": {"of": "llm"}}
        entries.append(JudgeEntry.model_validate(shadow))
        console = await stack.enter_async_context(serve_console(folder, entries))
        _fill(console)
        yield console


def _fill(console: Consoled) -> None:
    before, after = list(many("scripts", 24)), list(many("scripts", 24))
    for sample in after:
        for candidate in sample.scripts.candidates:
            for assessed in candidate.assessments:
                assessed.assessment.provenance.version = "1.5.0"
            for verdict in candidate.verdicts:
                if verdict.outcome == OUTCOME_PASS and candidate.model == "writer-large" and sample.index < 9:
                    verdict.outcome = OUTCOME_FAIL
    judges = [JudgeSelection(role="critic", judge=name) for name in ("strict", "lenient")]
    for name, samples in (("before", before), ("after", after)):
        finished_run(
            console.store,
            samples,
            run_id=name,
            name=f"Judge {'1.4' if name == 'before' else '1.5'}",
            creator="anna",
            judges=judges,
        )
    finished_run(console.store, many("dialogue", 12), run_id="dialogues", name="Shells", creator="ben")
    finished_run(console.store, many("pair", 30), run_id="pairs", name="Summaries", creator="anna")
    current = RunSpec(
        display_name="Night run", scripts=ScriptsRunOptions(), judges=judges, models=["writer-large"]
    )
    current.budget.max_token_count = 10_000
    create(console.store, "current", samples=40, spec=current, creator="anna")
    console.store.runs.change_state("current", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    done = [judged(index, {"writer-a": [True, False], "writer-b": [True, TIMED_OUT]}) for index in range(9)]
    console.store.samples.take("current", range(9), "e")
    console.store.attempts.finish("current", 1, done)


def _comparison(seen: Tab) -> None:
    seen.page.goto("/console/compare?baseline=before&run=after")
    _wait_for_report(seen)


def _wait_for_report(seen: Tab) -> None:
    seen.page.frame_locator("iframe.report").locator("#status", has_text="samples").wait_for()


def _home(seen: Tab) -> None:
    seen.page.goto("/console/")
    seen.until("document.querySelectorAll('td.result bdi').length > 3")


def label_set(seen: Tab) -> str:
    """Makes a label set that one annotator has labelled and another one is labelling; returns its address."""
    seen.page.goto("/console/labels/new?run=before")
    seen.page.fill("#field-name", "Pilot of two annotators")
    seen.page.fill("input[name=sample_size]", "12")
    seen.page.click("#create")
    seen.page.wait_for_selector("#start")
    address = str(seen.page.url)
    for annotator, keys, then in (
        ("anna", "ppfpppfppfpp", "#finished"),
        ("ben", "ppfpfpfpp", "text=Item 10 of"),
    ):
        seen.page.goto(f"{address}/queue?annotator={annotator}")
        press_keys(seen, keys)
        seen.page.locator(then).wait_for()
    return address


PAGES: Mapping[str, Callable[[Tab], None]] = {
    "runs": _home,
    "comparison": _comparison,
}


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
    for scheme in schemes:
        with _tab(scheme, REPORT.as_uri()) as seen:
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
        with (
            tempfile.TemporaryDirectory() as name,
            in_thread(serve_filled(Path(name))) as console,
            _tab(scheme, console.url) as seen,
        ):
            for title, show in PAGES.items():
                show(seen)
                _save(seen, folder / f"{title}-{scheme}.png")


ALL = {
    "runs": "",
    "run": "runs/after",
    "run-going-on": "runs/current",
    "shadows": "runs/after/shadows",
    "new-run": "runs/new",
    "compare": "runs/after/compare",
    "comparison": "compare?baseline=before&run=after",
    "labels": "labels",
    "new-label-set": "labels/new?run=after",
    "label-set": "{set}",
    "label-item": "{set}/queue?annotator=cid",
    "judges": "judges",
    "panel": "judges/critic/both",
    "judge": "judges/critic/partner",
    "shadow": "judges/execute/next",
    "new-judge": "judges/new/server",
    "new-panel": "judges/new/panel",
    **{f"evaluate-{kind}": f"evaluate/{kind}" for kind in KINDS},
}
"""Every page, by the name of its picture. ``{set}`` is the label set of ``label_set``."""
REPORTS = {
    "report": "runs/after/report",
    "sample": "runs/after/report#outcome=fail&open=first",
    "report-of-pairs": "runs/pairs/report",
    "report-of-a-comparison": "compare/report?baseline=before&run=after",
}
"""Reports without the console around them."""


def _save_whole(seen: Tab, file: Path) -> None:
    """The whole page. What is out of sight is not drawn, and frames are drawn in the viewport alone."""
    size = seen.page.viewport_size
    assert size is not None
    for _ in range(3):  # what comes into sight gets its height
        height = max(HEIGHT, seen.page.evaluate("document.documentElement.scrollHeight"))
        seen.page.set_viewport_size({"width": size["width"], "height": height})
        seen.page.wait_for_timeout(200)
    seen.page.screenshot(path=file)
    seen.page.set_viewport_size({"width": size["width"], "height": HEIGHT})


def look(folder: Path) -> None:
    """Writes pictures of every page in both themes and at 390 pixels.

    Args:
        folder: Where they are written.
    """
    os.environ["DRAMATURG_RUNS_ENABLED"] = "false"
    with tempfile.TemporaryDirectory() as name, in_thread(serve_filled(Path(name))) as console:
        _fill(console)
        with _tab("light", console.url) as seen:
            made = label_set(seen).partition("/console/")[2]
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)):
            with _tab(scheme, console.url, width, HEIGHT) as seen:
                for title, path in {**ALL, **REPORTS}.items():
                    seen.page.goto(f"/console/{path.format(set=made)}")
                    if seen.page.locator("iframe.report").count():
                        _wait_for_report(seen)
                    _save_whole(seen, folder / f"{title}-{scheme}-{width}.png")


if __name__ == "__main__":
    if sys.argv[1] == "--look":
        look(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
