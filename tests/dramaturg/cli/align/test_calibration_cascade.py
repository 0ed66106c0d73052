"""``labels align cascade``."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_REFUSED, Assessment, Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.judge.verdicts import abstained, failed, passed
from tests.support.align import answer, run
from tests.support.results import write_results

COUNT = 1000


def assessment(verdict: Verdict, cost: float | None) -> Assessment:
    made = Assessment(verdicts=[verdict])
    if cost is not None:
        made.provenance.usage.cost_usd = cost
    return made


def results(folder: Path, *, cost: float | None = 0.001, per_sample: int = 1) -> str:
    """A small judge that is right as often as its confidence says, and a large one, ten times as dear."""
    draw, made = random.Random(4), []
    for index in range(COUNT // per_sample):
        result = ScriptsResult()
        result.task.id = f"t{index}"
        for place in range(per_sample):
            one = result.candidates.add(candidate_id=f"c{place}", model="m")
            confidence, right = draw.choice([0.6, 0.8, 0.97, 0.99]), draw.random() < 0.5
            same = draw.random() < confidence
            first = (passed if right == same else failed)("adequacy", confidence=confidence)
            if index % 50 == 0:
                first = abstained("adequacy", ABSTAIN_REASON_REFUSED)
            last = passed("adequacy") if right else failed("adequacy")
            large = None if cost is None else 10 * cost
            one.assessments.add(role="critic", judge="small", assessment=assessment(first, cost))
            one.shadows.add(
                role="critic", judge="large", shadow_of="small", assessment=assessment(last, large)
            )
        made.append(result)
    return write_results(folder, made)


OPTIONS = ("--role", "critic", "--first", "small", "--last", "large")


@pytest.mark.parametrize("per_sample", [1, 2])
def test_the_threshold_its_error_and_the_cost_that_it_saves(tmp_path: Path, per_sample: int) -> None:
    file = results(tmp_path / "both", per_sample=per_sample)
    found = answer("cascade", file, *OPTIONS, "--alpha", "0.1")
    assert (found["candidates"], found["items"]) == (COUNT, COUNT)
    assert found["threshold"] in {0.97, 0.99}
    assert 0 <= found["disagreement"] <= 0.1
    # The small judge costs a tenth of the large one for every candidate.
    assert found["cost_saved"] == pytest.approx(found["decided"] - 0.1)
    assert 0.2 < found["decided"] < 0.6
    shown = run("cascade", file, *OPTIONS, "--alpha", "0.1")
    members = f"--member small={found['threshold']} --member large"
    assert f"next: dramaturg judges panel add critic=NAME {members} --rule cascade" in shown.stderr
    assert "cost saved" in shown.stdout


def test_without_a_threshold_or_prices_none_is_stated(tmp_path: Path) -> None:
    file = results(tmp_path / "both", cost=None)
    found = answer("cascade", file, *OPTIONS, "--alpha", "0.001")
    assert (found["threshold"], found["decided"], found["cost_saved"]) == (None, 0, None)
    assert "is shown to reach" in found["undefined"]
    assert "--member" not in run("cascade", file, *OPTIONS, "--alpha", "0.001").stdout
    assert answer("cascade", file, *OPTIONS)["cost_saved"] is None


def test_judges_without_common_candidates_are_refused(tmp_path: Path) -> None:
    found = run("cascade", results(tmp_path / "both"), *OPTIONS[:-1], "huge")
    assert found.exit_code == 2
    assert "judged nothing in common" in found.output


@pytest.mark.slow
def test_at_most_one_threshold_in_twenty_misses_its_error() -> None:
    """300 resamples of a judge that is right at .8, .88 and .93: a threshold of .88 would be wrong."""
    import numpy as np

    from services.alignment.calibration import Judgements, find_threshold

    generator, missed = np.random.default_rng(3), 0
    for seed in range(300):
        level = generator.integers(0, 3, 300)
        confidence = np.array([0.7, 0.85, 0.95])[level]
        agrees = (generator.random(300) < np.array([0.8, 0.88, 0.93])[level]).astype(float)
        found = find_threshold(
            Judgements(confidence, agrees, np.arange(300)), 0.9, 0.95, seed, clustered=False
        ).threshold
        # Those of .85 and .95 together agree in .905, all in .87.
        missed += found == 0.7
    assert missed / 300 <= 0.05
