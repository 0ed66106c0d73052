"""``dramaturg judges weights``: weights by measured and by estimated accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.formats.panel_weights import read_weights
from dramaturg.judge.verdicts import failed, passed
from gateway.settings import PanelTable
from tests.support.command_line import dramaturg
from tests.support.results import write_results

RIGHT = [index % 2 == 0 for index in range(20)]
WRONG = {"good": {3}, "fair": {0, 1, 2, 5, 8}, "poor": set(range(12))}
"""The items on which each judge is wrong."""


def results(folder: Path, repeated: int = 1, mistakes: Mapping[str, set[int]] = WRONG) -> str:
    """Twenty tasks judged by two judges, and by a shadow; judged alike in each repetition."""
    made = []
    for index, right in enumerate(RIGHT * repeated):
        result = ScriptsResult()
        result.task.id = f"t{index}"
        candidate = result.candidates.add(candidate_id="x", model="m")
        for judge, wrong in mistakes.items():
            verdict = passed("adequacy") if right != (index % len(RIGHT) in wrong) else failed("adequacy")
            assessment = Assessment(verdicts=[verdict])
            if judge == "poor":
                candidate.shadows.add(role="critic", judge=judge, shadow_of="good", assessment=assessment)
            else:
                candidate.assessments.add(role="critic", judge=judge, assessment=assessment)
        made.append(result)
    return write_results(folder, made)


async def test_weights_are_the_odds_of_the_accuracy_against_people(tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    rows = [f"t{index}/x,adequacy,p,{'PASS' if right else 'FAIL'}" for index, right in enumerate(RIGHT)]
    labels.write_text("\n".join(["item,criterion,annotator,label", *rows]) + "\n", encoding="utf-8")
    out = tmp_path / "weights.toml"
    found = await dramaturg(
        *("judges", "weights", results(tmp_path / "results"), "--role", "critic", "--labels", str(labels)),
        *("--out", str(out), "--json"),
    )
    assert found.code == 0, found.err
    by_judge = {one["judge"]: one for one in found.json["weights"]}
    assert (by_judge["good"]["items"], by_judge["good"]["accuracy"]) == (20, 0.95)
    assert by_judge["good"]["weight"] == pytest.approx(math.log(20 / 2))
    assert by_judge["fair"]["weight"] == pytest.approx(math.log(16 / 6))
    assert by_judge["poor"]["weight"] == 0.01
    assert dict(read_weights(out)) == pytest.approx({one: by_judge[one]["weight"] for one in WRONG}, rel=1e-5)
    panel = PanelTable.model_validate(
        {"rule": "weighted", "members": ["good", "fair"], "weights_file": str(out)}
    )
    assert [one.weight for one in panel.members] == pytest.approx([math.log(10), math.log(16 / 6)], rel=1e-5)


async def test_without_labels_the_accuracy_is_estimated(tmp_path: Path) -> None:
    wrong = {"good": {3}, "fair": {0, 1, 2, 5, 8}, "poor": {4, 6, 9, 11, 13, 17}}
    folder = results(tmp_path / "results", repeated=10, mistakes=wrong)
    found = await dramaturg("judges", "weights", folder, "--role", "critic", "--json")
    assert found.code == 0, found.err
    weights = {one["judge"]: one["weight"] for one in found.json["weights"]}
    assert weights["good"] > weights["fair"] > weights["poor"]
    assert "errors in common cannot be seen with three annotators" in found.json["notes"][0]
    none = await dramaturg("judges", "weights", str(tmp_path / "results"), "--role", "execute")
    assert (none.code, "no judge of the role 'execute'" in none.err) == (2, True)


async def test_copies_of_one_judge_have_no_weights_without_labels(tmp_path: Path) -> None:
    wrong = {"good": {3, 4, 5}, "copy": {3, 4, 5}, "poor": {0, 1, 2, 7, 11}}
    folder = results(tmp_path / "results", repeated=10, mistakes=wrong)
    found = await dramaturg("judges", "weights", folder, "--role", "critic")
    assert found.code == 1
    assert "3 annotators that differ are needed, there are 2: use labels of people" in found.err


@pytest.mark.parametrize(
    ("content", "panel", "fault"),
    [
        ("[weights]\na = 1\n", {"rule": "weighted"}, "without the member b"),
        ("[weights]\na = 1\nb = 2\n", {"rule": "majority"}, "does not use"),
        ("a = 1\n", {"rule": "weighted"}, "no table"),
        ("[weights]\na = 1\nb = 0\n", {"rule": "weighted"}, "greater than 0"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: str, panel: dict[str, str], fault: str
) -> None:
    file = tmp_path / "weights.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=fault):
        PanelTable.model_validate({"members": ["a", "b"], "weights_file": str(file), **panel})
