"""The card of a sample in a notebook."""

from __future__ import annotations

import html.parser
from typing import Any

import pytest

from dramaturg import evaluate_texts
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_INVALID_ARGUMENT
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.card import card
from tests.support.evaluation_samples import RESULTS, samples
from tests.support.harness_rows import CRITERIA, ROWS, gateway


class Read(html.parser.HTMLParser):
    """The elements and the text of a card."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


ATTACK = "</div><script>alert(1)</script><img src=x onerror=alert(1)> & \"quoted\" 'text'"


def test_a_result_shows_each_verdict_with_its_text_and_fault() -> None:
    with gateway() as (target, _):
        rude = ROWS[1].output
        result = evaluate_texts(
            ATTACK, {"a": ROWS[0].output, "b": rude, "c": ATTACK}, CRITERIA, target=target
        )
    shown = Read(result._repr_html_())
    for text in (ATTACK, rude, "It greets nobody.", "polite", "clear", "judge-0"):
        assert text in shown.text
    assert "script" not in shown.tags
    assert "img" not in shown.tags
    assert not [name for name in shown.attributes if name.startswith("on")]
    assert shown.tags.count("table") == 1
    assert result._repr_html_().count("FAIL</span>") == 2 * 2  # in the table, and at its text


@pytest.mark.parametrize("kind", RESULTS)
def test_a_sample_of_every_kind_has_a_card(kind: str) -> None:
    for sample in samples(kind):
        assert Read(card(sample)).tags[:2] == ["div", "style"]


def test_a_sample_that_failed_shows_its_error() -> None:
    sample = RunSample(sample_id="s1")
    sample.error.code, sample.error.message = STATUS_CODE_INVALID_ARGUMENT, "is too long"
    assert "INVALID_ARGUMENT: is too long" in Read(card(sample)).text
