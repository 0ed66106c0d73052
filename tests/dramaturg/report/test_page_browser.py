"""The page in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import PairsSummary, Summary
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Role
from dramaturg.api.roles.v1.role_service_pb2 import RolePoint
from dramaturg.report.page import Heading, render
from tests.dramaturg.report.browser import Visit, visit
from tests.dramaturg.report.many import many
from tests.dramaturg.report.samples import RESULTS, page, sample, shown_samples
from tests.support.browser import AXE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_browser")]

HOSTILE = (
    "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"
    "<b id=injected>soup</b> \u202emarks\u202c \x1b[31mred\x1b[0m nul:\x00: ' \" & `${1}`"
)
PRINTED_WIDTH = 1047
"""The pixels of a landscape A4 page between margins of 10 mm."""


class Reports(dict[str, Path]):
    """A report of each kind, made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, kind: str) -> Path:
        file = self[kind] = self._folder / f"{kind}.html"
        file.write_text(page(list(many(kind, 40))), encoding="utf-8")
        return file


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each kind."""
    return Reports(tmp_path_factory.mktemp("reports"))


def check(seen: Visit, width: int) -> None:
    """Asserts that the page fits its window and is accessible, in either theme."""
    for scheme in ("dark", "light"):
        seen.page.emulate_media(color_scheme=scheme)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        if width == 1280 and AXE.is_file():  # .ci/run installs axe-core
            assert not seen.violations(colours_only=scheme == "dark"), scheme


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_each_kind_opens_without_a_fault(reports: dict[str, Path], kind: str) -> None:
    with visit(reports[kind]) as seen:
        for width in (1280, 390):
            seen.page.set_viewport_size({"width": width, "height": 900})
            seen.open()
            assert seen.status() == "40 samples"
            assert seen.page.inner_text(".lead")
            seen.page.wait_for_selector(".matrix .row")
            check(seen, width)
            seen.open("#sample=3")
            assert seen.page.inner_text("#one .where") == "4 of 40"
            check(seen, width)
        assert not seen.faults


def test_the_text_of_a_prompt_is_one_press_away_in_each_sample(tmp_path: Path) -> None:
    first, second = sample("scripts", 0), sample("scripts", 1)
    told = first.scripts.candidates[0].assessments[0].assessment.provenance.prompts[0]
    told.text = f"# system\n\nJudge the script. {HOSTILE}\n\n# user\n\n{{{{script}}}}"
    file = tmp_path / "report.html"
    file.write_text(page([first, second]), encoding="utf-8")
    with visit(file) as seen:
        seen.open("#sample=1")
        seen.page.click("text=Judges, prompts and raw answers")
        seen.page.click("summary:has-text('prompt: critique')")
        seen.until("document.getElementById('one').innerText.includes('Judge the script.')")
        shown = seen.page.inner_text("#one")
        assert "{{script}}" in shown
        assert "[U+202E]" in shown
        assert "the raw answer" in shown
        assert not seen.faults
        assert seen.page.title() != "broken"


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
            if seen.page.evaluate("document.activeElement.matches('.matrix')"):
                break
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            seen.page.keyboard.press(key)
        assert "writer-tiny, sample 2: " in seen.page.evaluate("document.activeElement.textContent")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector("#one .verdicts tr.wanted")
        assert seen.page.evaluate("document.activeElement.tagName") == "H3"
        assert not seen.faults


def test_filters_agree_with_the_figures_that_link_to_them(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        seen.open("#model=writer-small&measure=order_correct&outcome=fail")
        shown = seen.status()
        fails = sum(
            subject["model"] == "writer-small"
            and any(
                one["measure"] == "order_correct" and one["outcome"] == "fail"
                for one in subject["judgements"]
            )
            for one in shown_samples(reports["scripts"].read_text(encoding="utf-8"))
            for subject in one["subjects"]
        )
        assert fails
        assert shown == f"{fails} judgements in {fails} of 40 samples"
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


def test_tags_disagreement_and_reasons_filter(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        seen.open("#tag.topic=Food&tag.steps=5")
        assert seen.status() == "2 of 40 samples"
        seen.open("#differs=1")
        differing = int(seen.status().split()[0])
        assert 0 < differing < 40
        assert seen.page.get_by_role("rowheader").filter(has_text="disagreement").count() > 0
        seen.open("#reason=TIMED_OUT")
        assert 0 < int(seen.status().split()[0]) < 40


@pytest.mark.parametrize("kind", ["scripts", "texts"])
def test_a_count_of_a_table_opens_exactly_the_judgements_that_it_counts(
    reports: dict[str, Path], kind: str
) -> None:
    with visit(reports[kind]) as seen:
        links = seen.page.eval_on_selector_all(
            'td a[href*="outcome="], td a[href*="reason="]',
            "all => all.map((one) => [one.textContent, one.hash])",
        )
        counts = [(text.strip(), target) for text, target in links if text.strip().isdigit()]
        assert len(counts) > 20
        for number, fragment in counts:
            seen.page.evaluate("(to) => { location.hash = to; }", fragment)
            seen.until(
                "document.getElementById('status').textContent.startsWith("
                f"'{number} judgements in ') && location.hash === {fragment!r}"
            )


def test_a_comparison_has_the_first_words_of_its_texts(reports: dict[str, Path]) -> None:
    with visit(reports["pair"]) as seen:
        seen.until("document.querySelector('.row .words').textContent !== ''")
        words = seen.page.locator(".row").first.locator(".words").all_inner_texts()
        assert words
        for one in words:
            assert re.search(r": The bridge at mile 0 .* / After the storm, nobody could cross", one)
        seen.open("#sample=0")
        context = seen.page.locator("#one .context")
        assert "First text, writer-large" in context.inner_text()
        assert "nobody could cross at mile 0" in context.inner_text()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 200 samples of three models."""
    file = tmp_path_factory.mktemp("large") / "report.html"
    file.write_text(page(list(many("scripts", 200))), encoding="utf-8")
    return file


CLICKS = """
window.clicks = 0;
document.addEventListener("click", () => { window.clicks += 1; window.clicked = performance.now(); }, true);
new MutationObserver(() => {
  if (!window.shown && document.querySelector("#one li.at-fault")) window.shown = performance.now();
}).observe(document.getElementById("one"), {childList: true, subtree: true});
"""


@pytest.mark.parametrize("way", ["the sentence", "the matrix"])
def test_one_click_leads_to_the_first_failing_text_of_the_worst_model(large: Path, way: str) -> None:
    with visit(large) as seen:
        seen.page.evaluate(CLICKS)
        if way == "the sentence":
            seen.page.get_by_role("link", name="Open the first failing text of writer-tiny").click()
        else:
            cells = seen.page.get_by_role("gridcell").get_by_role("link")
            cells.filter(has_text=re.compile("writer-tiny, sample .*: fails")).first.click()
        fault = seen.page.locator("#one details[open] li.at-fault ul li").first
        fault.wait_for()
        assert fault.inner_text().endswith("it repeats what the first step says")
        assert seen.page.evaluate("window.shown - window.clicked") <= 1000, "ms"
        assert seen.page.evaluate("window.clicks") == 1
        place = fault.bounding_box()
        assert place
        assert 0 <= place["y"] <= 900
        # The candidate of the worst model is the first, and the only one that is open.
        heads = seen.page.locator("#one .beside > div:last-child > details > summary").all_inner_texts()
        assert [head.split(" ")[0] for head in heads] == ["writer-tiny", "writer-large", "writer-small"]
        assert seen.page.locator("#one .beside > div:last-child > details[open]").count() == 1


def test_the_matrix_makes_the_rows_in_sight_alone(large: Path) -> None:
    with visit(large) as seen:
        assert 0 < seen.page.locator(".matrix .row").count() < 40
        assert seen.page.get_by_role("grid").get_attribute("aria-rowcount") == "201"
        seen.page.locator(".matrix").focus()
        seen.page.keyboard.press("ArrowDown")
        seen.page.keyboard.press("End")
        seen.until("document.activeElement.textContent.startsWith('200 ')")
        assert seen.page.locator(".matrix .row").count() < 40
        words = seen.page.locator('.matrix [aria-rowindex="201"] .words').first
        seen.until("document.querySelector('.matrix [aria-rowindex=\"201\"] .words').textContent !== ''")
        assert words.inner_text().startswith("step 0 of the plan for day 199")


def test_samples_are_sorted_by_failures_and_a_way_back_keeps_the_place(large: Path) -> None:
    with visit(large) as seen:
        seen.page.select_option("#sort", "failures")
        seen.until("location.hash.includes('sort=failures')")
        shown = (
            "[...document.querySelectorAll('.matrix .name .fail')].map((one) => parseInt(one.textContent))"
        )
        seen.until(
            "((all) => all.length > 5 && all[0] >= 8 && all.every((one, at) => !at || one <= all[at - 1]))"
            f"({shown})"
        )
        seen.page.locator(".matrix .name a").nth(4).click()
        seen.page.wait_for_selector("#one .facts")
        assert seen.page.inner_text("#one .where") == "5 of 200"
        seen.page.keyboard.press("j")
        seen.until("document.querySelector('#one .where').textContent === '6 of 200'")
        # Both presses before the page can show a sample.
        press = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', bubbles: true }))"
        seen.page.evaluate(f"{{ {press}; {press}; }}")
        seen.until("document.querySelector('#one .where').textContent === '4 of 200'")
        seen.page.get_by_role("link", name="All 200 samples").click()
        seen.page.wait_for_selector(".matrix .row")
        assert "sort=failures" in seen.page.url
        assert "sample=" not in seen.page.url


def test_a_filter_of_judgements_is_kept_from_sample_to_sample(large: Path) -> None:
    with visit(large) as seen:
        seen.open("#model=writer-small&measure=executable&outcome=fail&open=first")
        seen.page.wait_for_selector("#one tr.wanted")
        while seen.page.locator('a[data-key="j"][href]').count():
            where = seen.page.inner_text("#one .where")
            assert seen.page.inner_text("#one tr.wanted").startswith("executable")
            assert seen.page.locator("#one tr.wanted .badge").all_inner_texts() == ["FAIL"]
            seen.page.keyboard.press("j")
            seen.until(f"document.querySelector('#one .where').textContent !== {where!r}")
        ends = seen.page.inner_text("#one .where").split(" of ")
        assert ends[0] == ends[1]
        assert seen.page.locator("#chips button").count() == 4  # three filters, and all of them


def test_samples_are_shown_before_the_page_is_read_whole(large: Path, tmp_path: Path) -> None:
    html = large.read_text(encoding="utf-8")
    assert html.count('class="block"') == 4
    part = tmp_path / "part.html"
    part.write_text(html[: html.index('class="block"', html.index('id="index"'))], encoding="utf-8")
    with visit(part) as seen:
        assert seen.status() == "200 samples"
        seen.until("document.querySelector('.row .words').textContent.startsWith('step 0 of the plan')")
        seen.page.locator(".matrix .row .cell + .cell a").first.press("Enter")
        seen.page.locator("#one .verdicts").first.wait_for()
        assert not seen.faults


def test_a_sample_has_a_permanent_link_and_is_copied_as_json(large: Path) -> None:
    with visit(large) as seen:
        seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        seen.open("#model=writer-tiny&outcome=fail&sample=7&candidate=2")
        seen.page.get_by_role("button", name="Copy as JSON").click()
        seen.page.get_by_role("button", name="Copied").wait_for()
        copied = json.loads(seen.page.evaluate("navigator.clipboard.readText()"))
        assert (copied["index"], copied["sample_id"]) == (7, "t7")
        seen.page.get_by_role("link", name="Link to this sample").click()
        seen.until("location.hash === '#sample=7&candidate=2'")
        assert "writer-tiny" in seen.page.locator("#one details[open] summary").all_inner_texts()[1]


def test_what_a_scroller_cuts_off_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(list(many("scripts", 4, [f"writer-{n}" for n in range(12)]))), encoding="utf-8")
    with visit(file, width=1000) as seen:
        frame = seen.page.locator(".matrix.cut")
        frame.evaluate("(one) => { one.scrollLeft = one.scrollWidth; }")
        seen.until("document.querySelector('.matrix.cut') === null")


def test_equal_faults_of_several_steps_are_told_once(reports: dict[str, Path]) -> None:
    one = sample("scripts")
    file = reports["scripts"].parent / "faults.html"
    file.write_text(page([one]), encoding="utf-8")
    with visit(file) as seen:
        seen.open("#sample=0&candidate=0")
        faults = seen.page.locator("#one li.at-fault")
        assert faults.count() == 2
        assert "boil twice" in faults.nth(0).inner_text()
        assert "the same as at step 1" in faults.nth(1).inner_text()
        assert "boil twice" not in faults.nth(1).inner_text()


def test_a_table_is_downloaded_as_csv_latex_and_a_chart(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        held = {}
        for form in ("CSV", "LaTeX", "SVG"):
            with seen.page.expect_download() as waiting:
                seen.page.get_by_role("button", name=f"{form} of Models by rank").press("Enter")
            held[waiting.value.suggested_filename] = Path(waiting.value.path()).read_text(encoding="utf-8")
        assert sorted(held) == ["models-by-rank.csv", "models-by-rank.svg", "models-by-rank.tex"]
        assert held["models-by-rank.csv"].startswith("\ufeffrank,model,mean,mean (lower),mean (upper)")
        assert r"\begin{tabular}" in held["models-by-rank.tex"]
        chart = ElementTree.fromstring(held["models-by-rank.svg"])
        assert len(chart.findall("{http://www.w3.org/2000/svg}circle")) == 3
        assert len(chart.findall("{http://www.w3.org/2000/svg}path")) == 3
        assert seen.page.get_by_role("button", name="SVG of Judges").count() == 0
        assert not seen.faults


def test_columns_of_a_table_are_lists_on_a_phone(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"], width=390) as seen:
        tables = seen.page.locator("table.cards")
        for place in range(tables.count()):
            assert tables.nth(place).evaluate("(one) => one.scrollWidth <= one.parentElement.clientWidth")
        first = seen.page.locator("table.cards td[data-label=coverage]").first
        assert "coverage: " in first.evaluate("(one) => getComputedStyle(one, '::before').content")


def test_a_heat_map_says_how_many_it_rests_on_in_the_order_of_levels(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        table = seen.page.get_by_role("table", name="PASS of judged by level and model")
        levels = table.locator("tbody th").all_inner_texts()
        assert [one.strip() for one in levels] == ["easy", "medium", "hard", "N/A"]
        for cell in table.locator("td.heat").all_inner_texts():
            assert re.fullmatch(r"\d+\.\d %.* ?n \d+", cell.replace("\n", " ")), cell
        # Models stand in one order.
        orders = [
            seen.page.get_by_role("table", name=name).locator("thead th").all_inner_texts()[1:]
            for name in ("PASS of judged by criterion and model", "PASS of judged by steps and model")
        ]
        assert orders[0] == orders[1]
        colours = "all => all.map((one) => getComputedStyle(one).backgroundColor)"
        few = seen.page.eval_on_selector_all("td.h10.s2", colours)
        assert few
        assert set(few).isdisjoint(seen.page.eval_on_selector_all("td.h10.s3", colours))
        # The abstentions stand beside the first heat map, not below it.
        tops = [
            seen.page.get_by_role("heading", name=name, exact=True).bounding_box()
            for name in ("Criterion by model", "Abstentions")
        ]
        assert tops[0]
        assert tops[1]
        assert tops[0]["y"] == tops[1]["y"]


def test_details_of_the_leaderboard_are_folded(reports: dict[str, Path]) -> None:
    with visit(reports["scripts"]) as seen:
        heads = seen.page.locator("table.cards").first.locator("thead th").all_inner_texts()
        assert heads[:3] == ["rank", "model", "mean"]
        assert heads[4:] == ["judged", "coverage"]
        low, high = re.findall(r"[\d.]+", heads[3].replace("95 %", ""))
        assert float(low) > 50
        # On the bar stand the interval and the bounds that abstentions leave.
        board = seen.page.locator("section[aria-labelledby=leaderboard]")
        assert [board.locator(f"svg .{name}").count() for name in ("mean", "whisker", "end")] == [3, 3, 3]
        assert "Thin line with ends: from the lowest to the highest mean" in board.inner_text()
        assert float(high) <= 100
        details = seen.page.get_by_text(
            "Details: lowest, highest, difference to first, p, ranks, abstentions"
        )
        details.press("Enter")
        assert seen.page.get_by_role("columnheader", name="difference to first").is_visible()


def test_the_theme_that_is_chosen_is_kept(reports: dict[str, Path]) -> None:
    with visit(reports["pair"]) as seen:
        shown = "getComputedStyle(document.body).backgroundColor"
        light = seen.page.evaluate(shown)
        seen.page.select_option("#theme", "dark")
        dark = seen.page.evaluate(shown)
        assert dark != light
        seen.open()
        assert seen.page.evaluate(shown) == dark
        assert seen.page.input_value("#theme") == "dark"
        seen.page.select_option("#theme", "")
        seen.open()
        assert seen.page.evaluate(shown) == light


def test_the_theme_can_be_chosen_where_storage_is_refused(reports: dict[str, Path]) -> None:
    with visit(reports["pair"]) as seen:
        seen.page.add_init_script(
            "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('refused'); } });"
        )
        seen.open()
        light = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.page.select_option("#theme", "dark")
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        assert not seen.faults


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
        seen.until("document.getElementById('status').textContent.endsWith('10 of 40 samples')")


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
        seen.page.wait_for_selector("#one .facts")
        for one in seen.page.locator("#one details:not([open]) > summary").all():
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
        seen.page.wait_for_selector("#one ol.steps")
        assert re.search(r"\[980,000 more characters not shown\]", seen.page.inner_text("ol.steps >> nth=1"))
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
