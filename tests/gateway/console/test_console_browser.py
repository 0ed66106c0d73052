"""The console in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    RunBudget,
)
from gateway.runs.records import Incident
from tests.dramaturg.report.many import many
from tests.gateway.console.conftest import EVALUATOR, HOSTILE
from tests.support.browser import AXE, tab
from tests.support.console import Consoled
from tests.support.labelling import finished_run
from tests.support.runs import TIMED_OUT, create, judged, spec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_browser")]


def running(console: Consoled, samples: int = 3, **fields: Any) -> None:
    create(console.store, "run-1", samples=samples, spec=spec(**fields))
    console.store.runs.change_state("run-1", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    finish(console, 0)


def finish(console: Consoled, index: int) -> None:
    console.store.samples.take("run-1", [index], "e")
    console.store.attempts.finish(
        "run-1", 1, [judged(index, {"writer-a": [True, False], "writer-b": [True, TIMED_OUT]})]
    )


def test_progress_moves_without_a_reload(console: Consoled) -> None:
    running(console)
    with tab(console.url) as seen:
        seen.page.goto(f"{console.url}/console/runs/run-1")
        seen.page.evaluate("window.same = true")
        seen.page.focus("#action-pause")
        assert seen.page.inner_text("#samples") == "1 of 3 samples"
        finish(console, 1)
        seen.until("document.getElementById('samples').textContent === '2 of 3 samples'")
        assert seen.page.evaluate("window.same && document.activeElement.id") == "action-pause"
        assert not seen.faults


def test_the_state_is_changed_by_keyboard(console: Consoled) -> None:
    running(console)
    with tab(console.url) as seen:
        seen.page.goto(f"{console.url}/console/")
        seen.page.focus("#run-run-1")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("**/runs/run-1")
        seen.page.focus("#action-pause")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector("#action-resume")
        seen.page.on("dialog", lambda dialog: dialog.accept())
        seen.page.focus("#action-cancel")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector(".badge.cancelled")
        assert seen.page.locator("#control").count() == 0
        assert not seen.faults


def test_failures_and_budget_are_stated_in_words(console: Consoled) -> None:
    running(console, budget=RunBudget(max_token_count=100))
    console.store.runs.report_incident(
        "run-1", 1, Incident("the provider 'openai' refused the key", 3, 5.0, None)
    )
    with tab(console.url) as seen:
        seen.page.goto(f"{console.url}/console/runs/run-1")
        assert "the provider 'openai' refused the key" in seen.page.inner_text("#hindrance")
        assert "10 of 100" in seen.page.inner_text("main")


def test_the_page_of_a_run_is_its_report_also_while_it_goes_on(console: Consoled) -> None:
    running(console)
    with tab(console.url) as seen:
        seen.page.goto(f"{console.url}/console/runs/run-1")
        report = seen.page.frame_locator("iframe.report")
        report.locator("#status", has_text="1 samples").wait_for()
        report.locator(".matrix .name a").first.press("Enter")
        report.locator("#one .verdicts").first.wait_for()
        seen.until("location.hash === '#sample=0'")
        # What is opened has an address, and stays open when the run has ended.
        seen.page.reload()
        report.locator("#one .verdicts").first.wait_for()
        for index in (1, 2):
            finish(console, index)
        console.store.runs.change_state("run-1", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])
        report.locator("#one .where", has_text="1 of 3").wait_for()
        assert not seen.faults


def test_the_theme_of_a_report_is_kept_by_the_console(served: Consoled) -> None:
    finished_run(served.store, many("scripts", 4))
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/runs/run")
        report = seen.page.frame_locator("iframe.report")
        report.locator("#theme").select_option("dark")
        seen.until("document.documentElement.dataset.theme === 'dark'")
        seen.page.reload()
        report.locator("#status", has_text="samples").wait_for()
        assert report.locator("#theme").input_value() == "dark"
        assert report.locator("html").get_attribute("data-theme") == "dark"
        seen.page.goto(f"{served.url}/console/judges")
        seen.until("document.documentElement.dataset.theme === 'dark'")
        seen.page.goto(f"{served.url}/console/runs/run")
        report.locator("#theme").select_option("")
        seen.until("document.documentElement.dataset.theme === undefined")
        assert not seen.faults


def test_a_run_is_exported_evaluated_again_and_deleted(served: Consoled) -> None:
    finished_run(served.store, many("scripts", 4))
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/runs/run")
        seen.page.locator("#export summary").press("Enter")
        with seen.page.expect_download() as download:
            seen.page.get_by_role("link", name="judgements.csv").press("Enter")
        assert Path(download.value.path()).read_text(encoding="utf-8").startswith("sample_index,")
        seen.page.locator("#rerun summary").press("Enter")
        # Its longest choice is not cut off.
        assert seen.page.locator("#rerun select").evaluate(
            "(one) => { const free = one.cloneNode(true); free.style.maxWidth = 'none'; one.after(free);"
            " const fits = free.offsetWidth <= one.offsetWidth; free.remove(); return fits; }"
        )
        seen.page.select_option("#rerun select", "all")
        seen.page.focus("#start-rerun")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector(".badge.running, .badge.preparing")
        assert served.store.runs.get("run").attempt == 2  # type: ignore[union-attr]
        seen.page.on("dialog", lambda dialog: dialog.accept())
        seen.page.focus("#action-cancel")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector(".badge.cancelled")
        seen.page.locator("#details summary").press("Enter")
        seen.page.focus("#delete")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("**/console/")
        assert served.store.runs.get("run") is None
        assert not seen.faults


def test_runs_are_found_and_two_are_compared_from_the_list(served: Consoled) -> None:
    for name in ("before", "after", "pairs"):
        finished_run(served.store, many("pair" if name == "pairs" else "scripts", 4), run_id=name, name=name)
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/")
        seen.until("document.querySelectorAll('td.result bdi').length === 3")
        row = seen.page.locator("tr", has=seen.page.locator("#run-after")).inner_text()
        assert re.search(r"writer-large \d+\.\d\s%\s+\[\d+\.\d to \d+\.\d %\]\s+first of 3 models", row)
        seen.page.fill("input[type=search]", "BEF")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("**/console/?q=BEF*")
        assert seen.page.locator("tbody tr").count() == 1
        seen.page.goto(f"{served.url}/console/?kind=scripts")
        assert seen.page.locator("tbody tr").count() == 2
        assert seen.page.locator("#compare-two").is_disabled()
        for name in ("after", "before"):
            seen.page.focus(f"#choose-{name}")
            seen.page.keyboard.press("Space")
        seen.page.focus("#compare-two")
        seen.page.keyboard.press("Enter")
        # The older run is the baseline.
        seen.page.wait_for_url("**/console/compare?baseline=before&run=after")
        lead = seen.page.frame_locator("iframe.report").locator(".lead")
        assert "after" in lead.inner_text()
        assert not seen.faults


def test_hostile_text_is_shown_as_text(console: Consoled) -> None:
    running(console, display_name=HOSTILE)
    with tab(console.url) as seen:
        for path in ("", "runs/run-1"):
            seen.page.goto(f"{console.url}/console/{path}")
            shown = seen.page.inner_text("main")
            assert "<b id=injected>soup</b> [U+202E]marks[U+202C] [U+001B][31m" in shown
            assert seen.page.locator("#injected, main script").count() == 0
            assert seen.page.title() != "broken"
        assert not seen.faults


def test_a_visitor_signs_in_and_out(guarded: Consoled) -> None:
    with tab(guarded.url) as seen:
        seen.page.goto(f"{guarded.url}/console/judges")
        seen.page.fill("input[name=token]", EVALUATOR.token)
        if AXE.is_file():
            assert not seen.violations()
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url(f"{guarded.url}/console/judges")
        assert "evaluator@research" in seen.page.inner_text("header")
        assert EVALUATOR.token not in seen.page.evaluate(
            "document.cookie + document.documentElement.outerHTML"
        )
        seen.page.get_by_role("button", name="Sign out").press("Enter")
        seen.page.wait_for_url("**/sign-in")
        assert not seen.faults


def test_two_runs_are_compared_with_what_changed_first(served: Consoled) -> None:
    before, after = list(many("scripts", 24)), list(many("scripts", 24))
    turned = 0
    for sample in after:
        for candidate in sample.scripts.candidates:
            for assessed in candidate.assessments:
                assessed.assessment.provenance.version = "9.9.9"
            for verdict in (one for one in candidate.verdicts if one.outcome == OUTCOME_PASS):
                if candidate.model == "writer-large" and sample.index < 12:
                    verdict.outcome = OUTCOME_FAIL
                    turned += 1
    assert turned
    finished_run(served.store, before, run_id="before")
    finished_run(served.store, after, run_id="after")
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/runs/after")
        seen.page.get_by_role("link", name="Compare").press("Enter")
        seen.page.wait_for_url("**/compare")
        seen.page.locator("table.runs a").press("Enter")
        seen.page.wait_for_url("**/console/compare?*")
        assert seen.page.get_by_role("link", name="a run").count() == 2
        seen.page.goto(seen.page.url.replace("compare?", "compare/report?"))
        seen.until("document.getElementById('status').textContent.includes('samples')")
        assert f"{turned} of " in seen.page.inner_text(".lead")
        assert "is significant (p <" in seen.page.inner_text(".lead")
        assert seen.page.inner_text(".lead").startswith("NO-GO: ")
        heads = seen.page.locator("main h2").all_inner_texts()
        assert heads[:2] == ["What changed in the setup", "Got worse"]
        assert "9.9.9" in seen.page.inner_text("section[aria-labelledby=setup]")
        assert seen.page.inner_text("#status") == "12 samples"
        authors = seen.page.locator("section[aria-labelledby=got-worse] tbody th:nth-child(2):visible")
        assert set(authors.all_inner_texts()) == {"writer-large"}
        seen.page.locator("section[aria-labelledby=got-worse] tbody a").first.press("Enter")
        seen.until("document.getElementById('status').textContent === '1 of 12 samples'")
        seen.page.locator(".matrix .name a").first.press("Enter")
        seen.page.wait_for_selector("#one .verdicts")
        assert not seen.faults
