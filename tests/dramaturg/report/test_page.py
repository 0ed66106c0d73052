from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_UNAVAILABLE
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.summaries import summarize_results
from dramaturg.report.page import Heading, render, visible, write_report
from tests.dramaturg.report.samples import RESULTS, page, sample, shown_index, shown_samples

SHOWN = {
    "scripts": [
        "make soup",
        "in one pot",
        "boil the water",
        "two steps do the same",
        "0.75, 0.6 measured by repeats",
        "step 1, 2: boil twice",
        "TIMED_OUT",
        "strict (llm-critic 1)",
        "critique abababababab",
        "the raw answer",
        "gpt-2026",
        "120 + 30",
        "$0.0100",
    ],
    "pair": [
        "Editor",
        "it is clearer",
        "second text shown first",
        "FIRST",
        "share of the votes",
        "0.67 measured by repeats",
        "The bridge was closed.",
        "Nobody could cross.",
    ],
    "decision": ["get home", "it snows", "OPTION_1", "REFUSED", "story"],
    "dialogue": [
        "act as a shell",
        "a.txt",
        "plausible",
        "0.9 measured by repeats",
        "UNPARSABLE",
        "against n",
    ],
    "texts": [
        "where is my order",
        "polite: Pass: It greets.",
        "clear: How clear it is. From 1 to 5. 1: Confusing.",
        "It ships tomorrow.",
        "no greeting",
        "3.5 of 1 to 5",
        "strict on clear: 4 of 1 to 5",
        "strict (llm-critic 1)",
        "failure of the model: EMPTY",
    ],
    "scenarios": [
        "find the hours",
        "is far from a screen",
        "through: has no internet",
        "names an option, near-duplicate of option-1/0",
        "REFUSED",
        "the author did not answer",
    ],
    "simulation": ["act as a shell", "user (new-request): count the files", "challenging turn", "turn 2"],
    "graphs": ["bake a cake", "missing edges: 1 → 2", "extra edges: 2 → 1", "TRUNCATED"],
}


class Loads(HTMLParser):
    """Collects what a page would load from elsewhere, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.scripts = 0
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.scripts += tag == "script"
        self.loaded += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in {"src", "href", "srcset", "data", "action", "poster"}
        ]


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_everything_of_a_sample_is_shown(kind: str) -> None:
    shown = json.dumps(shown_samples(page([sample(kind)])), ensure_ascii=False)
    for text in SHOWN[kind]:
        assert text in shown, text


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_nothing_is_loaded_from_elsewhere(kind: str) -> None:
    html = page([sample(kind)])
    loads = Loads()
    loads.feed(html)
    assert all(" href=#" in one for one in loads.loaded), loads.loaded
    assert not re.search(r"url\(|@import", html)
    assert "default-src 'none'" in html
    assert "unsafe" not in html


def test_judged_text_is_escaped_wherever_it_stands() -> None:
    attack = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>\"'"

    def poison(value: object) -> object:
        if isinstance(value, dict):
            return {key: poison(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [poison(inner) for inner in value]
        enum = isinstance(value, str) and re.fullmatch(r"[A-Z0-9_]+|[\d.]+s?", value)
        return attack if isinstance(value, str) and not enum else value

    for kind in sorted(RESULTS):
        poisoned = ParseDict({"state": "SAMPLE_STATE_SUCCEEDED", kind: poison(RESULTS[kind])}, RunSample())
        html = page([poisoned], heading=Heading(attack, [("name", attack)], attack, [attack]))
        loads = Loads()
        loads.feed(html)
        assert loads.scripts == 4  # the files, a block of samples, the index, the page's own
        assert "img" not in loads.tags
        assert "&lt;script&gt;document.title" in html
        assert shown_index(html)["samples"]


def test_control_characters_and_marks_of_direction_are_visible() -> None:
    assert visible("a\x00b\x1b[31m\u202ec\n\td") == "a[U+0000]b[U+001B][31m[U+202E]c\n\td"


@pytest.mark.parametrize("mark", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_each_mark_of_direction_is_visible_in_the_page_and_to_its_script(mark: str) -> None:
    assert visible(mark) == f"[U+{ord(mark):04X}]"
    invisible = re.search(r"const INVISIBLE = /(\[.*?\])/g;", page([sample("scripts")]))
    assert invisible
    assert re.fullmatch(invisible[1], mark)


def test_a_failed_sample_says_why() -> None:
    failed = RunSample(index=3, line=4, sample_id="t9", state=run_pb2.SAMPLE_STATE_FAILED)
    failed.error.code, failed.error.message = STATUS_CODE_UNAVAILABLE, "no judge answers"
    html = page([failed])
    (shown,) = shown_samples(html)
    assert shown["error"] == "UNAVAILABLE: no judge answers"
    assert shown["sample_id"] == "t9"
    assert "No sample has a result: 1 failed." in html
    assert "outcome=failed" in html


def test_the_limit_restricts_the_samples_shown_but_not_the_figures() -> None:
    html = page([sample("scripts", place) for place in range(5)], limit=2)
    assert len(shown_samples(html)) == len(shown_index(html)["samples"]) == 2
    assert "This page has the first 2 of 5 samples." in html
    assert "5 samples · 0 without a result · 10 judgements" in html


def test_samples_that_are_not_finished_are_left_out() -> None:
    waiting = RunSample(index=1, state=run_pb2.SAMPLE_STATE_PENDING)
    html = page([sample("scripts"), waiting])
    assert [one["index"] for one in shown_samples(html)] == [0]


def test_the_page_opens_with_the_figures_of_the_summary() -> None:
    samples = [sample("scripts", place) for place in range(3)]
    other = samples[0].scripts.candidates[0]
    for one in samples:
        one.scripts.candidates.add().CopyFrom(other)
        one.scripts.candidates[1].model, one.scripts.candidates[1].candidate_id = "better", "c2"
        for verdict in one.scripts.candidates[1].verdicts:
            verdict.outcome = verdict_pb2.OUTCOME_PASS
    html = page(samples)
    assert re.search(
        r'<p class="lead"[^>]*>better leads: it passes 100 % of 6 verdicts .* cannot be told apart from it',
        html,
    )
    assert '<dt>leader</dt><dd><bdi>better</bdi><span class="of">not told apart from 1 of 1 others' in html


def test_an_unranked_model_is_listed_as_such() -> None:
    samples = [sample("scripts", place) for place in range(3)]
    for one in samples:
        one.scripts.candidates.add(model="silent", candidate_id="c2").verdicts.add(
            criterion="executable",
            outcome=verdict_pb2.OUTCOME_ABSTAIN,
            abstain_reason=verdict_pb2.ABSTAIN_REASON_TIMED_OUT,
        )
    html = page(samples)
    assert "Unranked, because their coverage is below 50 %: silent." in html
    assert "3 timed out" in html


def test_missing_gold_answers_are_beside_the_ranking_and_in_a_section() -> None:
    samples = [sample("scripts", place) for place in range(3)]
    samples[1].scripts.gold_answer.Clear()
    samples[1].scripts.gold_answer.failure = "It declined."
    samples[1].scripts.gold_answer.failure_reason = verdict_pb2.ABSTAIN_REASON_REFUSED
    html = page(samples)
    words = "1 of 3 samples were judged without the gold answer that they asked for (REFUSED 1)."
    assert html.count(words) == 2  # beside the leaderboard, and among the limits of the figures
    assert ">Missing gold answers</h2>" in html
    assert "Missing gold answers" not in page(samples[:1])


def test_cells_link_to_their_samples() -> None:
    html = page([sample("scripts", place) for place in range(3)])
    assert 'href="#measure=no_duplicate_steps&amp;outcome=fail"' in html
    assert 'href="#model=writer&amp;measure=executable"' in html
    assert 'href="#reason=TIMED_OUT"' in html


def test_an_evaluation_of_nothing_is_a_page_too() -> None:
    html = "".join(render(Heading("Empty"), Summary(), []))
    assert "There are no samples." in html
    assert 'id="samples"' in html


def test_results_on_disk_become_a_page(tmp_path: Path) -> None:
    lines = [json.dumps(MessageToDict(getattr(sample(kind), kind))) for kind in ("scripts", "scripts")]
    (tmp_path / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    error = {
        "index": 2,
        "line": 3,
        "task_id": "t3",
        "tags": {},
        "code": "INTERNAL",
        "reason": "INTERNAL",
        "message": "no",
    }
    (tmp_path / "errors.jsonl").write_text(json.dumps(error) + "\n", encoding="utf-8")
    summary = asyncio.run(summarize_results(None, tmp_path, SummaryOptions()))
    write_report(tmp_path, tmp_path / "report.html", summary)
    assert (summary.sample_count, summary.failed_sample_count, summary.judgement_count) == (3, 1, 4)
    shown = shown_samples((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [one.get("error", "") for one in shown] == ["", "", "INTERNAL: no"]


def test_a_thousand_candidates_stay_below_three_megabytes() -> None:
    samples = []
    for place in range(250):
        one = sample("scripts", place)
        (first,) = one.scripts.candidates
        for copy in range(3):
            one.scripts.candidates.add().CopyFrom(first)
            one.scripts.candidates[-1].candidate_id = f"c{copy + 2}"
        for candidate in one.scripts.candidates:
            for number, step in enumerate(candidate.script.steps):
                step.text = f"step {number} of {place}: " + " ".join(
                    str(place * 7919 % (number + 97)) for _ in range(30)
                )
            for assessed in candidate.assessments:
                for completion in assessed.assessment.provenance.completions:
                    completion.raw_text = "".join(chr(97 + (place * 31 + at * at) % 26) for at in range(2000))
        samples.append(one)
    assert len(page(samples, limit=1000).encode()) < 3_000_000


def test_judgements_that_are_not_asked_for_do_not_lower_the_coverage() -> None:
    summary = Summary(sample_count=2, failed_sample_count=1, judgement_count=10)
    summary.abstentions_by_reason.update({"NOT_SUPPORTED": 6, "TIMED_OUT": 1})
    html = "".join(render(Heading("A page"), summary, []))
    assert "<dt>coverage</dt><dd><bdi>37.5 %</bdi>" in html
    assert ">1 of 4 judgements abstained; 6 do not count as asked for</span>" in html
