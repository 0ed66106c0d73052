"""Labelling and the form of evaluations in a real browser."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_FIRST,
    ComparePairResponse,
    Role,
)
from dramaturg.api.roles.v1.role_service_pb2 import GenerateRolesResponse
from dramaturg.conformance.judges import PIXEL
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.verdicts import passed, scored
from dramaturg.testing import FakeJudge, in_thread, serve
from gateway.console.labels import choice_keys
from gateway.settings import JudgeEntry
from tests.dramaturg.report.many import many
from tests.dramaturg.report.test_page_browser import hostile
from tests.gateway.console.conftest import HOSTILE
from tests.support.browser import AXE, Tab, browser, tab
from tests.support.console import Consoled, serve_console
from tests.support.gateway import Fake
from tests.support.labelling import agent_run, finished_run, press_keys
from tests.support.pairs import FakeFinder, everyone, pair_judge, role_finder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_browser")]


def create_set(console: Consoled, seen: Tab, items: int, run: str = "run") -> str:
    """Creates a label set by the form; returns its address."""
    seen.page.goto(f"{console.url}/console/labels/new?run={run}")
    seen.page.fill("#field-name", "pilot")
    seen.page.fill("input[name=sample_size]", str(items))
    seen.page.focus("#create")
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_selector("#start, [role=alert]")
    assert not seen.page.locator("[role=alert]").count(), seen.page.inner_text("main")
    return seen.page.url


def label(seen: Tab, address: str, annotator: str, keys: str) -> None:
    """Labels items by keyboard alone, from the page of the set."""
    seen.page.goto(address)
    seen.page.focus("input[name=annotator]")
    seen.page.keyboard.type(annotator)
    seen.page.keyboard.press("Enter")
    press_keys(seen, keys)
    seen.page.wait_for_selector("#finished")


def test_two_annotators_label_by_keyboard_and_see_kappa(served: Consoled) -> None:
    finished_run(served.store, many("scripts", 10))
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/runs/run")
        seen.page.get_by_role("link", name="Label a sample").press("Enter")
        seen.page.wait_for_url("**/labels/new?run=run")
        address = create_set(served, seen, 4)
        label(seen, address, "ann", "ppff")
        label(seen, address, "bob", "ppfp")
        seen.page.goto(address)
        # Observed 3/4; by chance (1/2)(3/4) + (1/2)(1/4) = 1/2.
        assert "ann and bob: 0.50" in seen.page.inner_text("#agreement tbody tr >> nth=0")
        with seen.page.expect_download() as download:
            seen.page.get_by_role("link", name="labels.csv").press("Enter")
        text = Path(download.value.path()).read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["label"] for row in rows if row["annotator"] == "bob"] == ["PASS", "PASS", "FAIL", "PASS"]
        assert not seen.faults


def test_agreement_moves_while_another_annotator_labels(served: Consoled) -> None:
    finished_run(served.store, many("scripts", 10))
    with browser() as opened:
        mine, other = (Tab(opened.new_page(), served.url) for _ in range(2))
        address = create_set(served, mine, 2)
        label(mine, address, "ann", "pf")
        mine.page.goto(address)
        assert mine.page.locator("#agreement").count() == 0
        label(other, address, "bob", "pf")
        mine.until("document.getElementById('agreement')?.textContent.includes('ann and bob: 1.00')")
        assert not mine.faults + other.faults


def test_labels_are_changed_and_withdrawn(served: Consoled) -> None:
    finished_run(served.store, many("dialogue", 4))
    with tab(served.url) as seen:
        address = create_set(served, seen, 3)
        label(seen, address, "ann", "105")
        seen.page.goto(f"{address}/queue?annotator=ann&at=1")
        assert seen.page.inner_text("button[aria-pressed=true]").split() == ["0", "10"]
        seen.page.keyboard.press("ArrowLeft")
        seen.page.locator("h1", has_text="Item 1 of").wait_for()
        seen.page.wait_for_load_state()
        seen.page.keyboard.press("7")
        seen.page.wait_for_selector("#finished")
        seen.page.goto(f"{address}/queue?annotator=ann&at=0")
        assert seen.page.inner_text("button[aria-pressed=true]").split() == ["7", "7"]
        seen.page.fill("input[name=note]", "p1: typing presses no key")
        assert "at=0" in seen.page.url
        seen.page.get_by_role("button", name="Withdraw").press("Enter")
        seen.page.locator("h1", has_text="Item 1 of").wait_for()
        assert not seen.faults


def test_a_turn_is_judged_in_its_conversation_beside_its_images(served: Consoled) -> None:
    finished_run(served.store, [agent_run()])
    with tab(served.url) as seen:
        asked: list[str] = []
        seen.page.on("request", lambda one: asked.append(one.url))
        address = create_set(served, seen, 5)
        judged = []
        for place in range(5):
            seen.page.goto(f"{address}/queue?annotator=ann&at={place}")
            marked = seen.page.locator("li.marked")
            judged += [marked.inner_text().splitlines()[0] for _ in range(marked.count())]
            judged += seen.page.locator(".mark").all_inner_texts()
            image = seen.page.locator("ol.steps img")
            assert image.evaluate_all("all => all.map(one => one.complete && one.naturalWidth)") == [1]
            assert "http://10.0.0.1/sky.png" in seen.page.inner_text(".label-texts")
        marks = [
            "Turn 2 is judged",
            "Turn 2, call 1 is judged",
            "Turn 2, call 2 is judged",
            "Turn 4 is judged",
        ]
        assert sorted(judged) == sorted([*["assistant:"] * 4, *marks])
        assert not [one for one in asked if "10.0.0.1" in one]
        assert not seen.faults


@pytest.mark.parametrize("kind", ["scripts", "dialogue"])
def test_hostile_texts_are_labelled_as_text(served: Consoled, kind: str) -> None:
    finished_run(served.store, [hostile(kind)])
    with tab(served.url) as seen:
        address = create_set(served, seen, 1)
        seen.page.goto(f"{address}/queue?annotator=%3Cb%20id%3Dinjected%3E")
        shown = seen.page.inner_text("main")
        assert "<b id=injected>soup</b> [U+202E]marks[U+202C]" in shown
        assert seen.page.locator("#injected, main script, img").count() == 0
        assert not seen.faults


def test_a_pasted_text_is_judged_with_reasons(served: Consoled) -> None:
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/evaluate")
        seen.page.fill("#field-text", f"Line one.\nIt ships {HOSTILE}")
        seen.page.fill("[name='criterion.0.id']", "Polite")
        for name in ("id", "about"):
            seen.page.fill(f"[name='criterion.1.{name}']", "")
        seen.page.focus("#evaluate")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector("#result")
        # The result is there before the script at the end of the page, which moves the focus to it.
        seen.until("document.activeElement.id === 'result'")
        shown = seen.page.inner_text("section")
        assert "FAIL" in shown
        assert "Not </td><script>" in shown
        assert seen.page.input_value("#field-text") == f"Line one.\nIt ships {HOSTILE}"
        assert seen.page.locator("#injected, main script").count() == 0
        assert not seen.faults


@asynccontextmanager
async def _with_judges_of_all(folder: Path) -> AsyncIterator[Consoled]:
    async def compare(request: Any, context: Any) -> ComparePairResponse:
        assert request.options.model == "small"
        return await everyone(PREFERENCE_FIRST)(request, context)

    def judge(name: str) -> FakeJudge:
        def answer(request: Any, candidate: Any) -> list[Verdict]:
            assert request.options.model == "small"
            return [
                scored(one.id, one.scale.highest) if one.HasField("scale") else passed(one.id, rationale=name)
                for one in request.criteria
            ]

        return FakeJudge(answer, name=name, criteria=ABSEVAL, capabilities=["any-criterion", "conversation"])

    reader = Role(type="Reader", description="Reads it.")
    async with (
        serve(judge("first").contract()) as first,
        serve(judge("second").contract()) as second,
        serve(pair_judge(compare)) as pairs,
        serve(role_finder(FakeFinder(GenerateRolesResponse(roles=[reader])))) as roles,
        serve(Fake("synthesize").contract()) as author,
    ):
        entries = [
            JudgeEntry(role="pair-judge", name="pairs", target=pairs.target),
            JudgeEntry(role="roles", name="roles", target=roles.target),
            JudgeEntry(role="synthesize", name="author", target=author.target),
        ]
        for role in ("rubric-judge", "critic", "execute", "commonsense"):
            entries.append(JudgeEntry(role=role, name="first", target=first.target, default=True))
            entries.append(JudgeEntry(role=role, name="second", target=second.target))
        async with serve_console(folder, entries) as served:
            yield served


@pytest.mark.parametrize(
    ("kind", "role", "said"),
    [
        ("rubric", "rubric-judge", "second"),
        ("conversation", "rubric-judge", "second"),
        ("pair", "", "FIRST"),
        ("script", "critic", "second"),
    ],
)
def test_the_example_of_a_form_is_judged_as_it_stands(
    tmp_path: Path, kind: str, role: str, said: str
) -> None:
    with in_thread(_with_judges_of_all(tmp_path)) as console, tab(console.url) as seen:
        seen.page.goto(f"{console.url}/console/evaluate/{kind}")
        if role:
            seen.page.select_option(f"#judge-{role}", f"{role}=second")
        seen.page.fill("[name=model]", "small")
        seen.page.click("#evaluate")
        seen.page.wait_for_selector("#result")
        assert said in seen.page.inner_text("section table")
        assert "ABSTAIN" not in seen.page.inner_text("section")
        # A criterion with a scale has a score in place of a verdict.
        assert ("5 of 1 to 5" in seen.page.inner_text("section")) == (kind == "rubric")
        assert seen.page.input_value("[name=model]") == "small"
        if AXE.is_file():
            assert not seen.violations()
        assert not seen.faults


def test_what_a_judge_cannot_read_is_said_above_the_form(served: Consoled) -> None:
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/evaluate/rubric")
        seen.page.fill("#field-text", "Tomorrow.")
        seen.page.fill("[name='criterion.1.anchors']", "good: at all")
        seen.page.click("#evaluate")
        seen.page.wait_for_selector("[role=alert]")
        assert "criterion 2: 'good: at all' is not of the form" in seen.page.inner_text("[role=alert]")
        assert seen.page.input_value("[name='criterion.1.anchors']") == "good: at all"
        assert seen.page.input_value("#field-text") == "Tomorrow."


def test_a_conversation_is_judged_by_a_criterion_that_is_added(served: Consoled) -> None:
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/evaluate/conversation")
        seen.page.get_by_role("button", name="Add a criterion").press("Enter")
        seen.page.keyboard.type("polite")
        seen.page.fill("[name='criterion.1.about']", "It greets the customer.")
        seen.page.fill("[name='criterion.0.id']", "")
        seen.page.fill("[name='criterion.0.about']", "")
        seen.page.focus("#evaluate")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector("#result")
        assert "polite" in seen.page.inner_text("section th[scope=row]")
        assert not seen.faults


def test_messages_with_calls_and_an_image_are_judged_and_shown(served: Consoled) -> None:
    image = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    call = {"id": "1", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "Rain."},
    ]
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/evaluate/conversation")
        for written, shown in (([*messages, {"content": "?"}], "[role=alert]"), (messages, "#result")):
            seen.page.fill("#field-conversation", json.dumps(written))
            seen.page.focus("#evaluate")
            seen.page.keyboard.press("Enter")
            seen.page.wait_for_selector(shown)
            if written is not messages:
                assert "conversation[3].role: is missing" in seen.page.inner_text("[role=alert]")
                assert [one for one in seen.faults if "400 (Bad Request)" not in one] == []
                seen.faults.clear()
        for part in ('[calls weather with {"city": "Oslo"}]', "[result of the tool: Rain.]"):
            assert part in seen.page.inner_text("main")
        widths = "all => all.map(one => one.naturalWidth)"
        assert seen.page.locator("main ol.steps img").evaluate_all(widths) == [1]
        assert not seen.faults


def test_every_choice_has_a_key_of_its_own() -> None:
    assert choice_keys(["PASS", "FAIL"]) == [("p", "PASS"), ("f", "FAIL")]
    assert choice_keys(["first", "tie", "second"])[1] == ("2", "tie")
    many_keys = choice_keys([str(value) for value in range(1, 37)])
    assert many_keys[9] == ("0", "10")
    assert len({key for key, _ in many_keys}) == 36


def tab_to(seen: Tab, selector: str) -> None:
    """Presses Tab until an element has the focus; it is marked."""
    for _ in range(40):
        seen.page.keyboard.press("Tab")
        if seen.page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            break
    focused = "wanted => document.activeElement.matches(wanted + ':focus-visible')"
    assert seen.page.evaluate(focused, selector), selector
    assert seen.page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px", selector


# The kind of a run, the presses of the arrow key that choose the task, the keys of two annotators, what the
# first one's labels are, and the columns of a sheet with its labels.
BY_KEYBOARD = (
    ("decision", 0, ("123", "122"), ["option 1", "option 2", "either"], "labels.csv", ("item", "label")),
    ("graphs", 0, ("pfp", "pff"), ["PASS", "FAIL", "PASS"], "labels.csv", ("item", "label")),
    ("scenarios", 0, ("135", "134"), ["easy", "hard", "reject"], "review.csv", ("scenario", "level")),
    ("scenarios", 1, ("321", "322"), ["either", "option 2", "option 1"], "labels.csv", ("item", "label")),
)


@pytest.mark.parametrize(("kind", "task", "keys", "labels", "sheet", "columns"), BY_KEYBOARD)
def test_decisions_graphs_and_scenarios_are_labelled_by_keyboard_alone(
    served: Consoled,
    kind: str,
    task: int,
    keys: Sequence[str],
    labels: Sequence[str],
    sheet: str,
    columns: Sequence[str],
) -> None:
    finished_run(served.store, many(kind, 4))
    with tab(served.url) as seen:
        seen.page.goto(f"{served.url}/console/runs/run")
        tab_to(seen, "a[href*='labels/new']")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("**/labels/new?run=run")
        tab_to(seen, "select[name=task]")
        for _ in range(task):
            seen.page.keyboard.press("ArrowDown")
        tab_to(seen, "input[name=sample_size]")
        seen.page.keyboard.type("3")
        tab_to(seen, "#create")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector("#start")
        address = seen.page.url
        assert seen.page.inner_text("h1") == "a run"
        assert "a run" in seen.page.inner_text(".note >> nth=0")
        for annotator, pressed in zip(("ann", "bob"), keys, strict=True):
            seen.page.goto(address)
            tab_to(seen, "input[name=annotator]")
            seen.page.keyboard.type(annotator)
            seen.page.keyboard.press("Enter")
            press_keys(seen, pressed)
            seen.page.wait_for_selector("#finished")
        seen.page.goto(f"{address}/queue?annotator=ann&at=0")
        for place, label in enumerate(labels, start=1):
            seen.page.locator("h1", has_text=f"Item {place} of 3").wait_for()
            assert seen.page.inner_text("button[aria-pressed=true]").endswith(label)
            seen.page.wait_for_load_state()
            seen.page.keyboard.press("ArrowRight")
        if AXE.is_file():
            assert not seen.violations()
        seen.page.goto(address)
        assert "ann and bob:" in seen.page.inner_text("#agreement")
        tab_to(seen, f"a[href$='{sheet}']")
        with seen.page.expect_download() as download:
            seen.page.keyboard.press("Enter")
        text = Path(download.value.path()).read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert rows
        assert set(columns) <= set(rows[0]), rows[0]
        assert not seen.faults
