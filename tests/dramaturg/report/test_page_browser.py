"""The page in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import PairsSummary, Summary
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Role
from dramaturg.api.roles.v1.role_service_pb2 import RolePoint
from dramaturg.report.page import Heading, render
from tests.dramaturg.report.browser import visit
from tests.dramaturg.report.many import many
from tests.dramaturg.report.samples import RESULTS, page, sample
from tests.support.browser import AXE

pytestmark = pytest.mark.slow

HOSTILE = (
    "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"
    "<b id=injected>soup</b> \u202emarks\u202c \x1b[31mred\x1b[0m nul:\x00: ' \" & `${1}`"
)
PRINTED_WIDTH = 1047
"""The pixels of a landscape A4 page between margins of 10 mm."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each kind."""
    folder = tmp_path_factory.mktemp("reports")
    files = {}
    for kind in RESULTS:
        files[kind] = folder / f"{kind}.html"
        files[kind].write_text(page(list(many(kind, 40))), encoding="utf-8")
    return files


@pytest.mark.parametrize("kind", sorted(RESULTS))
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_each_kind_opens_without_a_fault(
    reports: dict[str, Path], kind: str, scheme: str, width: int
) -> None:
    with visit(reports[kind], scheme=scheme, width=width) as seen:
        assert seen.status() == "40 samples"
        assert seen.page.inner_text(".lead")
        seen.open("#sample=3")
        assert "1 of 40 samples" in seen.status()
        seen.page.wait_for_selector("details.sample[open] .facts")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert not seen.faults


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_each_kind_is_printed_whole_on_a_landscape_page(reports: dict[str, Path], kind: str) -> None:
    with visit(reports[kind], scheme="dark", width=PRINTED_WIDTH) as seen:
        seen.page.emulate_media(media="print")
        ends = seen.page.evaluate(
            "[...document.querySelectorAll('table')].map(one => one.getBoundingClientRect().right)"
        )
        assert ends
        assert max(ends) <= PRINTED_WIDTH
        assert not seen.page.is_visible("form")


@pytest.mark.parametrize("kind", sorted(RESULTS))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(reports: dict[str, Path], kind: str, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make test-report installs it")
    with visit(reports[kind], scheme=scheme) as seen:
        seen.open("#sample=2")
        seen.page.wait_for_selector("details.sample[open] .facts")
        assert not seen.serious_faults()


def test_a_cell_leads_to_its_samples_by_keyboard(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        link = seen.page.locator('a[href="#model=writer-tiny&measure=executable"]').first
        link.focus()
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector("#chips button")
        assert "#model=writer-tiny&measure=executable" in seen.page.url
        assert seen.page.evaluate("document.activeElement.id") == "samples"
        # On to the search, the filters, the chips and the first sample, by keyboard alone.
        for _ in range(40):
            seen.page.keyboard.press("Tab")
            if seen.page.evaluate("document.activeElement.closest('details.sample') !== null"):
                break
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector("details.sample[open] .verdicts")
        assert not seen.faults


def test_filters_agree_with_the_figures_that_link_to_them(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        seen.open("#model=writer-small&measure=order_correct&outcome=fail")
        shown = seen.status()
        fails = seen.page.evaluate(
            """() => {
              const data = JSON.parse(document.getElementById("index").textContent);
              const model = data.models.indexOf("writer-small");
              const measure = data.measures.indexOf("order_correct");
              return data.samples.filter((one) => one[6].some(([author, shape, outcomes]) =>
                author === model && outcomes[data.shapes[shape].indexOf(measure)] === "f")).length;
            }"""
        )
        assert fails
        assert shown == f"{fails} of 40 samples"
        assert seen.page.input_value("#model") == "=writer-small"
        seen.page.get_by_role("button", name="Remove the filter outcome: fail").press("Enter")
        seen.until("!location.hash.includes('outcome')")
        seen.settle()
        assert "40" in seen.status()


def test_search_reads_whole_samples_and_keeps_a_link(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        seen.page.fill("#q", "of the plan for day 17")
        seen.until("document.getElementById('status').textContent.startsWith('1 of')")
        assert "q=of+the+plan" in seen.page.url
        link = seen.page.url.partition("#")[2]
        seen.open(f"#{link}")
        seen.until("document.getElementById('status').textContent.startsWith('1 of')")
        assert seen.page.input_value("#q") == "of the plan for day 17"


def test_tags_disagreement_reasons_and_pages_filter(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        seen.open("#tag.topic=Food&tag.steps=5")
        assert seen.status() == "2 of 40 samples"
        seen.open("#differs=1")
        assert 0 < int(seen.status().split()[0]) < 40
        assert seen.page.locator("details.sample").count() == seen.page.locator(".counts .numeric").count()
        seen.open("#reason=TIMED_OUT")
        assert 0 < int(seen.status().split()[0]) < 40
        seen.open("")
        assert seen.page.locator("details.sample").count() == 25
        seen.page.locator("#next").press("Enter")
        seen.until("document.querySelectorAll('details.sample').length === 15")
        assert "page=2" in seen.page.url


def test_the_theme_can_be_chosen(reports: dict[str, Path]) -> None:
    with visit(reports["pair"]) as seen:
        light = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.page.select_option("#theme", "dark")
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_tables_need_no_script(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"], scripts=False) as seen:
        assert "need JavaScript" in seen.page.inner_text("main")
        assert "writer-large" in seen.page.inner_text("table >> nth=0")


def test_edges_are_drawn_as_matched_missing_and_extra(reports: dict[str, Path]) -> None:
    with visit(reports["graphs"]) as seen:
        states = set()
        for place in range(6):
            seen.open(f"#sample={place}")
            seen.page.wait_for_selector("svg.graph")
            states |= set(
                seen.page.eval_on_selector_all(
                    "svg.graph .edge", "all => all.map((one) => one.classList[1] || '')"
                )
            )
        assert {"matched", "missing", "extra", ""} <= states


def test_roles_are_on_a_map_and_in_a_table(reports: dict[str, Path]) -> None:
    with visit(reports["pair"]) as seen:
        section = seen.page.locator("section[aria-labelledby=map-of-the-roles]")
        titles = section.locator("svg.map title").all_text_contents()
        rows = section.locator("tbody tr th").all_inner_texts()
        assert sorted(title.split(":")[0] for title in titles) == sorted(rows)
        assert {"Cook", "Physician", "Editor"} <= set(rows)
        assert {"General public", "Farmer"} <= set(section.locator("svg.map text").all_text_contents())
        assert "of their variance (model all-MiniLM-L6-v2)" in section.inner_text()
        votes = seen.page.locator("section[aria-labelledby=votes-by-role]")
        link = votes.get_by_role("link", name="Astronomer")
        link.press("Enter")
        seen.until("document.getElementById('status').textContent === '10 of 40 samples'")


def test_hostile_names_on_a_map_are_text(tmp_path: Path) -> None:
    summary = Summary(sample_count=1, pairs=PairsSummary(role_count=2))
    for x in (0.0, 1.0):
        role = Role(type=HOSTILE, description=HOSTILE)
        summary.pairs.roles.add(role=role, method="roles", point=RolePoint(x=x, y=x))
    file = tmp_path / "report.html"
    file.write_text("".join(render(Heading("A title"), summary, [])), encoding="utf-8")
    with visit(file) as seen:
        assert seen.page.locator("svg.map title").count() == 1  # roles of one name are one
        assert seen.page.title() == "A title"
        assert seen.page.locator("#injected, img, main script").count() == 0
        assert not seen.faults


def hostile(kind: str) -> RunSample:
    """A sample whose texts, names and tags are hostile."""
    made = sample(kind)
    made.tags["level"] = HOSTILE
    _poison(getattr(made, kind))
    return made


def _poison(message: object) -> None:
    for field, value in message.ListFields():  # type: ignore[attr-defined]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        repeated = field.is_repeated
        for one in value if repeated else [value]:
            if field.message_type is not None:
                _poison(one)
        if field.type == field.TYPE_STRING and field.name not in {"id", "source_id", "target_id"}:
            if repeated:
                value[:] = [HOSTILE for _ in value]
            else:
                setattr(message, field.name, HOSTILE)


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_hostile_text_is_shown_as_text(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(page([hostile(kind), hostile(kind)]), encoding="utf-8")
    with visit(file) as seen:
        seen.open("#sample=0")
        seen.page.wait_for_selector("details.sample[open] .facts")
        for one in seen.page.locator("details.sample details:not([open]) > summary").all():
            one.press("Enter")
        shown = seen.page.inner_text("body")
        assert seen.page.title() == "A title"
        assert seen.page.locator("#injected, img, main script").count() == 0
        assert "<b id=injected>soup</b> [U+202E]marks[U+202C] [U+001B][31mred" in shown
        assert "nul:[U+0000]:" in shown
        assert not seen.faults


def test_a_line_of_a_million_characters_is_cut_with_a_note(tmp_path: Path) -> None:
    long = sample("scripts")
    long.scripts.candidates[0].script.steps[0].text = "x" * 1_000_000
    file = tmp_path / "report.html"
    file.write_text(page([long]), encoding="utf-8")
    assert file.stat().st_size < 200_000
    with visit(file, width=390) as seen:
        seen.open("#sample=0")
        seen.page.wait_for_selector("details.sample[open] ol.steps")
        assert re.search(r"\[980,000 more characters not shown\]", seen.page.inner_text("ol.steps >> nth=1"))
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
