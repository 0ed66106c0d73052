"""From a file to its report in the console, and the judges that are registered there."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_PASS, Assessment, Finding, Verdict
from dramaturg.judge.verdicts import failed, passed
from dramaturg.service.errors import ServiceError
from dramaturg.testing import FakeJudge, in_thread, serve
from gateway.console.uploads import MAX_BYTES, read_upload
from gateway.settings import JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.gateway.console.conftest import HOSTILE
from tests.support.browser import AXE, Tab, tab
from tests.support.command_line import ROOT
from tests.support.console import serve_whole_console

ANSWERS = ROOT / "examples" / "texts" / "answers.csv"
MOST_CLICKS = 6


def judge(name: str, refused: str) -> FakeJudge:
    """A judge of rubrics that fails texts with a word."""

    def answer(request: Any, candidate: Any) -> Any:
        if refused in candidate.text:
            return [failed(one.id, rationale="It sends the customer elsewhere.") for one in request.criteria]
        return [passed(one.id) for one in request.criteria]

    return FakeJudge(answer, name=name)


@asynccontextmanager
async def _gateway(folder: Path) -> AsyncIterator[str]:
    async with (
        AlignmentApp().open() as contracts,
        serve(*contracts) as alignment,
        serve(judge("first", "website").contract()) as first,
        serve(judge("second", "picture").contract()) as second,
    ):
        entries = [
            JudgeEntry(role="alignment", name="statistics", target=alignment.target),
            JudgeEntry(role="rubric-judge", name="first", target=first.target, default=True),
            JudgeEntry(role="rubric-judge", name="second", target=second.target, owner="partner"),
        ]
        async with serve_whole_console(folder, entries, judge_targets=("127.0.0.1:*",)) as url:
            yield url


@pytest.fixture
def gateway(tmp_path: Path, shared_browser: None) -> Iterator[str]:
    """The address of a console whose gateway evaluates runs, with two judges of rubrics."""
    with in_thread(_gateway(tmp_path)) as url:
        yield url


class Clicks:
    """Clicks of a visitor, counted."""

    def __init__(self, seen: Tab) -> None:
        self.count = 0
        self._page = seen.page

    def click(self, selector: str) -> None:
        self.count += 1
        self._page.click(selector)

    def upload(self, selector: str, file: Path) -> None:
        """Opens the file chooser of the browser, and takes a file in it."""
        with self._page.expect_file_chooser() as chooser:
            self.click(selector)
        chooser.value.set_files(file)
        self.count += 1

    def choose(self, selector: str, value: str) -> None:
        """Opens a list, and takes a value of it."""
        self._page.select_option(selector, value)
        self.count += 2


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_a_csv_becomes_a_report_in_six_clicks(gateway: str, scheme: str, width: int) -> None:
    with tab(gateway, scheme=scheme, width=width) as seen:
        seen.page.goto(f"{gateway}/console/")
        visitor = Clicks(seen)
        visitor.click("#new")
        visitor.upload("#file", ANSWERS)
        visitor.choose("#rubric", "builtin:relevance")
        seen.page.wait_for_selector("#estimate")
        assert "a table with 6 texts for 3 tasks" in seen.page.inner_text("#checked")
        assert seen.page.input_value("select[name='column.model']") == "model"
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        if AXE.is_file():
            assert not seen.violations()
        visitor.click("#start")
        report = seen.page.frame_locator("iframe.report")
        # The report is there before the last sample, and read again with it.
        report.locator("#status", has_text="3 samples").wait_for()
        assert report.locator(".lead").inner_text().startswith("alpha leads")
        assert visitor.count <= MOST_CLICKS
        seen.page.goto(f"{gateway}/console/")
        seen.page.wait_for_selector("td.result bdi")
        assert seen.page.inner_text("th[scope=row]").split() == ["answers.csv", "texts"]
        assert not seen.faults


@pytest.mark.slow
def test_a_column_a_rubric_and_two_judges_are_chosen(gateway: str, tmp_path: Path) -> None:
    file = tmp_path / "survey.csv"
    file.write_text(f'who,comment\nme,"{HOSTILE} website"\nyou,A picture.\n', encoding="utf-8")
    with tab(gateway) as seen:
        # From the page of a judge that is compared with another one.
        seen.page.goto(f"{gateway}/console/judges/rubric-judge/first")
        seen.page.click("#compare")
        seen.page.wait_for_url("**/runs/new?*")
        seen.page.set_input_files("#file", file)
        seen.page.wait_for_selector("#checked [role=alert]")
        assert "Choose the column of the texts" in seen.page.inner_text("#checked")
        seen.page.select_option("select[name='column.text']", "comment")
        seen.page.wait_for_selector("#shadow-rubric-judge")
        assert "criterion" in seen.page.inner_text("#checked [role=alert]")
        assert "<b id=injected>soup</b>" in seen.page.inner_text("#checked")
        assert seen.page.input_value("#shadow-rubric-judge") == "rubric-judge=second"
        seen.page.fill("[name='criterion.0.id']", "Is polite")
        seen.page.fill("[name='criterion.0.about']", "It is polite.")
        seen.page.click("#start")
        seen.page.wait_for_selector("[data-final='1']", state="attached")
        seen.page.reload()
        seen.page.get_by_role("link", name="Agreement of judges").press("Enter")
        seen.page.wait_for_url("**/shadows")
        # The first judge fails the first text, the second one the other.
        assert "0.0 %" in seen.page.inner_text("main table tbody tr")
        assert "is_polite" in seen.page.inner_text("main")
        assert seen.page.locator("#injected, main script").count() == 0
        assert not seen.faults


@pytest.mark.slow
def test_a_panel_is_registered_checked_and_removed(gateway: str) -> None:
    with tab(gateway) as seen:
        seen.page.goto(f"{gateway}/console/judges")
        assert seen.page.locator("h2").all_inner_texts() == ["rubric-judge"]
        assert seen.page.locator("#built-in").inner_text() == "1 configured judge of other roles, all serving"
        seen.page.click("#register")
        seen.page.get_by_role("link", name="Panel").click()
        seen.page.wait_for_url("**/new/panel")
        seen.page.fill("#name", "both")
        seen.page.fill("[name=quorum]", "2")
        for name in ("first", "second"):
            seen.page.check(f"[value='rubric-judge={name}']")
        seen.page.click("#submit")
        seen.page.wait_for_url("**/judges/rubric-judge/both")
        assert "majority, quorum 2 of 2: first, second" in seen.page.inner_text("dl.facts")
        if AXE.is_file():
            assert not seen.violations()
        seen.page.goto(f"{gateway}/console/judges/rubric-judge/second")
        seen.page.click("#check")
        seen.page.wait_for_selector("#result")
        assert "requirements hold" in seen.page.inner_text("#result")
        assert "IdentityService names the implementation" in seen.page.inner_text(".checks")
        seen.page.goto(f"{gateway}/console/judges/rubric-judge/both")
        seen.page.on("dialog", lambda dialog: dialog.accept())
        seen.page.click("#remove")
        seen.page.wait_for_url("**/console/judges")
        assert "both" not in seen.page.inner_text("main")
        assert not seen.faults


@pytest.mark.slow
def test_a_shadow_is_registered_checked_and_its_agreement_stands_on_its_page(
    gateway: str, tmp_path: Path
) -> None:
    file = tmp_path / "survey.csv"
    file.write_text("task,text\nask,A website.\nask,A picture.\nask,A letter.\n", encoding="utf-8")
    with tab(gateway) as seen:
        seen.page.goto(f"{gateway}/console/judges/rubric-judge/second")
        address = seen.page.locator("dt", has_text="Address").locator("+ dd").inner_text()
        seen.page.goto(f"{gateway}/console/judges/new/server")
        for field, value in (("name", "third"), ("target", address), ("shadow_of", "first")):
            seen.page.fill(f"[name={field}]", value)
        seen.page.select_option("[name=role]", "rubric-judge")
        seen.page.click("#submit")
        seen.page.wait_for_url("**/judges/rubric-judge/third")
        assert "not measured: no recent run has both" in seen.page.inner_text("dl.facts")
        seen.page.click("#check")
        seen.page.wait_for_selector("#result")
        assert "requirements hold" in seen.page.inner_text("#result")
        assert seen.page.locator("#compare").count() == 1
        seen.page.goto(f"{gateway}/console/runs/new")
        seen.page.set_input_files("#file", file)
        seen.page.fill("[name='criterion.0.id']", "polite")
        seen.page.fill("[name='criterion.0.about']", "It is polite.")
        seen.page.wait_for_selector("#estimate")
        seen.page.click("#start")
        seen.page.wait_for_selector("[data-final='1']", state="attached")
        seen.page.goto(f"{gateway}/console/judges/rubric-judge/third")
        facts = seen.page.inner_text("dl.facts")
        assert "33 % of 3 verdicts agree, kappa -0.50 in survey.csv" in facts.replace("\n", " "), facts
        seen.page.get_by_role("link", name="survey.csv").click()
        seen.page.wait_for_url("**/shadows")
        assert not seen.faults


@asynccontextmanager
async def _with_a_careless_judge(folder: Path) -> AsyncIterator[str]:
    def answer(request: Any, candidate: Any) -> Any:
        fault = Finding(description="A fault.")
        return Assessment(
            verdicts=[
                Verdict(criterion=one.id, outcome=OUTCOME_PASS, findings=[fault]) for one in request.criteria
            ]
        )

    async with serve(FakeJudge(answer, name="careless").contract()) as server:
        entries = [JudgeEntry(role="rubric-judge", name="careless", target=server.target)]
        async with serve_whole_console(folder, entries, quarantine_breaches=1) as url:
            yield url


@pytest.mark.slow
@pytest.mark.usefixtures("shared_browser")
def test_the_page_of_a_judge_in_quarantine_has_the_reason(tmp_path: Path) -> None:
    with in_thread(_with_a_careless_judge(tmp_path)) as url, tab(url) as seen:
        seen.page.goto(f"{url}/console/evaluate/rubric")
        seen.page.click("#evaluate")
        seen.page.wait_for_selector("#result")
        for path in ("judges", "judges/rubric-judge/careless"):
            seen.page.goto(f"{url}/console/{path}")
            shown = seen.page.inner_text("main")
            assert "in quarantine: not called until a check succeeds" in shown
            assert "1 of its last 1 answers broke the contract, the last one: " in shown
        assert not seen.faults


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b"", "rows.csv", "there are no rows"),
        (b"no JSON\n", "rows.jsonl", "line 1: is not JSON"),
        (b"\xff\xfe", "rows.csv", "is not UTF-8"),
        (b"PK\x03\x04", "rows.xlsx", "cannot be read as XLSX"),
        (b"task,text\n,\n", "rows.csv", "row 1: task: is missing"),
        (b'{"colour": 1}\n', "../../etc/passwd", "its first row is of no kind"),
    ],
)
def test_a_file_that_cannot_be_evaluated_is_told_with_the_reason(data: bytes, name: str, said: str) -> None:
    found = read_upload(name, data, {})
    assert said in found.problem
    assert not found.content


def _zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/workbook.xml", b" " * (1 << 30))
    return data.getvalue()


def _unzipped() -> bytes:
    return gzip.compress(b"text\n" + b"a\n" * (64 << 20))


@pytest.mark.slow
@pytest.mark.parametrize(("bomb", "name"), [(_zipped, "rows.xlsx"), (_unzipped, "rows.csv.gz")])
def test_a_file_that_grows_is_refused_and_costs_the_gateway_nothing(
    bomb: Callable[[], bytes], name: str
) -> None:
    data = bomb()
    assert len(data) < MAX_BYTES
    try:
        problem = read_upload(name, data, {}).problem
    except ServiceError as error:
        problem = error.violations[0].description
    assert "memory" in problem or "XLSX" in problem
