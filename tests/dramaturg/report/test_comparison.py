"""The page of several results, as ``dramaturg report A B`` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner

from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_TIMED_OUT,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.cli.main import app
from dramaturg.judge.verdicts import scored
from tests.dramaturg.report.browser import visit
from tests.dramaturg.report.many import many
from tests.dramaturg.report.samples import shown_index, shown_samples

COUNT = 20


def write(folder: Path, samples: Sequence[RunSample]) -> Path:
    folder.mkdir()
    results = (getattr(one, str(one.WhichOneof("result"))) for one in samples)
    lines = (json.dumps(MessageToDict(result)) + "\n" for result in results)
    (folder / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty samples. In the second result eight fail a criterion, and the judges have a new version."""
    folder = tmp_path_factory.mktemp("comparison")
    before = list(many("scripts", COUNT, ("writer",)))
    for one in before:
        for verdict in one.scripts.candidates[0].verdicts:
            verdict.outcome = OUTCOME_PASS
            verdict.ClearField("abstain_reason")
    after = [RunSample.FromString(one.SerializeToString()) for one in before]
    for one in after[:8]:
        one.scripts.candidates[0].verdicts[0].outcome = OUTCOME_FAIL
    after[9].scripts.candidates[0].verdicts[1].outcome = OUTCOME_ABSTAIN
    after[9].scripts.candidates[0].verdicts[1].abstain_reason = ABSTAIN_REASON_TIMED_OUT
    before[10].scripts.candidates[0].verdicts[2].outcome = OUTCOME_FAIL
    for one in after:
        for assessed in one.scripts.candidates[0].assessments:
            assessed.assessment.provenance.version = "2"
    # The second result has its samples in another order.
    paths = [write(folder / "old", before), write(folder / "new", after[::-1])]
    page = folder / "changes.html"
    done = CliRunner().invoke(app, ["report", *map(str, paths), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert "10 judgements differ" in done.output
    return page


def test_the_decision_comes_first_then_the_setup_and_the_changes_in_both_directions(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    lead = re.search(r'<p class="lead"[^>]*>([^<]*)</p>', html)
    assert lead
    assert lead[1].startswith(
        "NO-GO: new is worse than old: 8 of 140 judgements got worse and 1 better, "
        "1 changed to or from an abstention; the difference of −"
    )
    assert lead[1].endswith("The setup changed too.")
    # The author stands there, not the id of its text.
    assert "<bdi>writer</bdi>" in html[html.index(">Got worse</h2>") : html.index(">Got better</h2>")]
    change = "new: the judge &#39;strict&#39; of critic has the version &#39;llm-critic 2&#39;"
    setup, worse, better, abstained = (
        html.index(f">{title}</h2>")
        for title in ("What changed in the setup", "Got worse", "Got better", "Abstentions that changed")
    )
    assert setup < html.index(change) < worse < better < abstained
    assert abstained < html.index(">Samples</h2>") < html.index(">Differences</h2>")
    assert "<bdi>timed out</bdi>" in html
    assert "<bdi>changed</bdi>" in html


def test_samples_of_one_id_are_shown_together(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    shown = shown_samples(html)
    assert len(shown) == COUNT
    titles = [[one["title"] for one in sample["subjects"]] for sample in shown]
    assert all(one == ["old: c0", "new: c0"] for one in titles)
    index = shown_index(html)
    worse = index["tags"].index(["worse", "no_missing_steps"])
    assert sum(worse in index["lists"][sample[4]] for sample in index["samples"]) == 8


def test_a_result_without_common_samples_is_refused(report: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", [])
    done = CliRunner().invoke(
        app, ["report", str(report.parent / "old"), str(other), "-o", str(tmp_path / "x.html")]
    )
    assert done.exit_code == 2
    assert "has no results" in done.output


def test_a_page_replaces_no_table_and_no_results(report: Path) -> None:
    results = report.parent / "old" / "results.jsonl"
    before = results.read_bytes()
    done = CliRunner().invoke(app, ["report", str(results.parent), "-o", str(results)])
    assert done.exit_code == 2
    assert "it ends in .html" in done.output
    assert results.read_bytes() == before


@pytest.mark.slow
def test_texts_are_compared_by_verdicts_and_scores(tmp_path: Path) -> None:
    before = list(many("texts", 3, ("m",)))
    after = [RunSample.FromString(one.SerializeToString()) for one in before]
    for one, score in ((before[0], 2), (after[0], 4)):
        scale = next(each for each in one.texts.criteria if each.HasField("scale"))
        verdicts = {verdict.criterion: verdict for verdict in one.texts.texts[0].verdicts}
        verdicts[scale.id].CopyFrom(scored(scale.id, score))
    page = tmp_path / "changes.html"
    paths = [write(tmp_path / "old", before), write(tmp_path / "new", after)]
    done = CliRunner().invoke(app, ["report", *map(str, paths), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert "1 judgements differ" in done.output
    html = page.read_text(encoding="utf-8")
    assert "judgements got worse and 1 better" in html
    assert f"2 of {scale.scale.lowest} to {scale.scale.highest}" in html


def test_a_long_title_of_a_sample_covers_no_other_column(report: Path, tmp_path: Path) -> None:
    page = tmp_path / "long.html"
    long = "Plan day 0 of a trip on foot that takes as long as its name and a little more"
    results = []
    for name in ("old", "new"):
        lines = (report.parent / name / "results.jsonl").read_text(encoding="utf-8")
        results.append(tmp_path / name)
        results[-1].mkdir()
        (results[-1] / "results.jsonl").write_text(
            lines.replace("Plan day 0 of a trip on foot", long), encoding="utf-8"
        )
    done = CliRunner().invoke(app, ["report", *map(str, results), "-o", str(page)])
    assert done.exit_code == 0, done.output
    with visit(page) as seen:
        named = seen.page.locator("section[aria-labelledby=got-worse] th", has_text=long)
        assert named.evaluate(
            "(one) => one.querySelector('a').getBoundingClientRect().right"
            " <= one.getBoundingClientRect().right"
        )


def test_changes_lead_to_samples_in_a_browser(report: Path) -> None:
    with visit(report, width=390) as seen:
        seen.open("#tag.worse=no_missing_steps")
        assert seen.status() == f"8 of {COUNT} samples"
        # A change leads to its sample, which has its title for a name, and no other whose id begins alike.
        seen.page.locator("section[aria-labelledby=got-worse] tbody a").nth(1).press("Enter")
        seen.until("document.getElementById('status').textContent.startsWith('1 of')")
        assert re.search(
            "Plan day [0-7] of a trip", seen.page.inner_text("section[aria-labelledby=got-worse]")
        )
        seen.page.locator(".matrix .name a").first.press("Enter")
        seen.page.wait_for_selector("#one .verdicts")
        assert not seen.faults
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
