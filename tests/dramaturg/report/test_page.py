from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.aggregator import ReportAggregator
from dramaturg.report.page import Heading, render, write_report
from tests.dramaturg.report.samples import RESULTS, sample

SHOWN = {
    "scripts": [
        "make soup",
        "in one pot",
        "boil the water",
        "two steps do the same",
        "step 1, 2: boil twice",
        "TIMED_OUT",
        "strict (llm-critic 1)",
        "critique abababababab",
        "the raw answer",
        "gpt-2026",
        "120 + 30",
        "$0.0100",
    ],
    "pair": ["Editor", "it is clearer", "second text shown first", "FIRST", "share of the votes"],
    "decision": ["get home", "it snows", "OPTION_1", "REFUSED", "story"],
    "dialogue": ["act as a shell", "a.txt", "plausible", "UNPARSABLE", "against n"],
    "graphs": ["bake a cake", "missing edges: 1 -&gt; 2", "added edges: 2 -&gt; 1", "TRUNCATED"],
}


def page(samples: list[RunSample], limit: int = 500) -> str:
    aggregator = ReportAggregator()
    for one in samples:
        aggregator.add(one)
    return "".join(render(Heading("A title"), aggregator, samples, limit))


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
    html = page([sample(kind)])
    for text in SHOWN[kind]:
        assert text in html, text


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_nothing_is_loaded_from_elsewhere(kind: str) -> None:
    html = page([sample(kind)])
    loads = Loads()
    loads.feed(html)
    assert loads.loaded == []
    assert loads.scripts == 1
    assert not re.search(r"url\(|@import", html)
    assert "default-src 'none'" in html


def test_judged_text_is_escaped_wherever_it_stands() -> None:
    attack = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>\"'"

    def poison(value: object) -> object:
        if isinstance(value, dict):
            return {key: poison(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [poison(inner) for inner in value]
        enum = isinstance(value, str) and re.fullmatch(r"[A-Z0-9_]+|[\d.]+s?", value)
        return attack if isinstance(value, str) and not enum else value

    samples = [
        ParseDict({"index": place, kind: poison(RESULTS[kind])}, RunSample())
        for place, kind in enumerate(sorted(RESULTS))
    ]
    html = page(samples)
    loads = Loads()
    loads.feed(html)
    assert loads.scripts == 1
    assert "img" not in loads.tags
    assert "&lt;script&gt;document.title" in html


def test_a_failed_sample_says_why() -> None:
    failed = RunSample(index=3, line=4, sample_id="t9", state=run_pb2.SAMPLE_STATE_FAILED)
    failed.error.code, failed.error.message = "UNAVAILABLE", "no judge answers"
    html = page([failed])
    assert "UNAVAILABLE: no judge answers" in html
    assert "t9" in html


def test_the_limit_restricts_the_samples_shown_but_not_the_counts() -> None:
    html = page([sample("scripts", place) for place in range(5)], limit=2)
    assert html.count('<details class="sample"') == 2
    assert "The first 2 of 5." in html
    assert "10 of 20" not in html
    assert "<b>10</b><span>judgements</span>" in html


def test_the_leaderboard_leaves_abstentions_out_and_says_so() -> None:
    html = page([sample("scripts", place) for place in range(3)])
    assert "0.000" in html
    assert "3 of 6" in html
    assert "50.0 %" in html
    assert "3 TIMED_OUT" in html


def test_an_evaluation_of_nothing_is_a_page_too() -> None:
    assert "<h2>Samples</h2>" in page([])


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
    aggregator = write_report(tmp_path, tmp_path / "report.html")
    assert (aggregator.samples, aggregator.failed, aggregator.judgements) == (3, 1, 4)
    assert "INTERNAL: no" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_measure_on_another_scale_is_shown_without_colour() -> None:
    dialogue = sample("dialogue")
    dialogue.dialogue.scores.add(model="m", attribute="rude", judge="words").score.value = 0.25
    html = page([dialogue])
    assert "Without colour: not on the scale of 1 to 10." in html
    assert re.search(r'<rect class="blank" [^>]*/><text class="low" [^>]*>0.25<', html)
