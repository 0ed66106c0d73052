"""``dramaturg judges compare`` at a running gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge.verdicts import failed, passed
from dramaturg.testing import serve
from services.alignment.app import App as AlignmentApp
from tests.support.command_line import dramaturg
from tests.support.gateway import Fake, criteria_of, gateway_target, scripts_request


async def alternating(request: Any) -> Assessment:
    """FAIL for the first candidate alone."""
    verdict = failed if request.candidate.id == "c0" else passed
    return Assessment(verdicts=[verdict(criterion, rationale="So.") for criterion in criteria_of("critic")])


async def opposite(request: Any) -> Assessment:
    """FAIL for all but the first candidate."""
    verdict = passed if request.candidate.id == "c0" else failed
    return Assessment(verdicts=[verdict(criterion, rationale="So.") for criterion in criteria_of("critic")])


async def test_two_judges_with_equal_pass_rates_that_never_agree(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(MessageToDict(scripts_request(2))) + "\n", encoding="utf-8")
    async with (
        AlignmentApp().open() as contracts,
        serve(*contracts) as alignment,
        gateway_target(
            Fake("synthesize"),
            Fake("critic", alternating, name="a", default=True),
            Fake("critic", opposite, name="b"),
            Fake("alignment", target=alignment.target),
        ) as target,
    ):
        at = ("--target", target, "--out", str(tmp_path / "out"))
        shown = await dramaturg("judges", "compare", "critic=a", "b", str(rows), *at)
        as_json = await dramaturg(
            *("judges", "compare", "critic=a", "critic=b", str(rows), "--target", target),
            *("--out", str(tmp_path / "json"), "--json"),
        )
        unknown = await dramaturg("judges", "compare", "critic=a", "gone", str(rows), *at)
        page = tmp_path / "page.html"
        report = await dramaturg("report", str(tmp_path / "out"), "--out", str(page), "--target", target)
    assert shown.code == 0, shown.err
    for words in ("Equal pass rates are not agreement", "6 verdicts differ.", "no_missing_steps", "0.0%"):
        assert words in shown.out
    (found,) = as_json.json["judge_comparisons"]
    whole = found["figures"][-1]
    assert (whole["judged_count"], whole["agreement"]["value"]) == (6, 0)
    assert whole["first_pass_rate"]["value"] == whole["second_pass_rate"]["value"] == 0.5
    assert (whole["cohen_kappa"]["value"], found["flip_count"]) == (-1, 6)
    assert found["first"]["assessment_count"] == found["second"]["assessment_count"] == 2
    assert (unknown.code, "gone" in unknown.err) == (2, True)
    assert report.code == 0, report.err
    text = page.read_text(encoding="utf-8")
    assert "6 of 6 verdicts that differ" in text
    assert 'href="#sample=0"' in text


async def test_wrong_usage_is_told_before_a_gateway_is_asked(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("", encoding="utf-8")
    for names, words in (
        (("a", "b"), "ROLE=NAME NAME"),
        (("critic=a", "a"), "named twice"),
        (("critic=a", "execute=b"), "ROLE=NAME NAME"),
    ):
        refused = await dramaturg("judges", "compare", *names, str(rows))
        assert (refused.code, words in refused.err) == (2, True), refused.err
