from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg_research.training.scripts import (
    Script,
    ScriptError,
    hold_out,
    make_script,
    read_script,
    read_scripts,
)

FULL: dict[str, Any] = {
    "scenario": "bake a cake",
    "context": "NONE",
    "events": {"0": "mix", "1": "heat", "2": "NONE", "3": "bake a cake"},
    "gold_edges_for_prediction": ["2->0", "2->1", "0->3", "1->3"],
}
SIMPLE: dict[str, Any] = {
    "scenario": "bake a cake",
    "events": {"0": "mix", "1": "heat", "2": "bake a cake"},
    "gold_edges_for_prediction": ["0->2", "1->2"],
}


def test_a_full_record_keeps_its_root() -> None:
    script = read_script(FULL)
    assert script.events == ("mix", "heat", "decided to bake a cake", "bake a cake")
    assert script.edges == {(2, 0), (2, 1), (0, 3), (1, 3)}
    assert script.precedes(2, 3)
    assert not script.precedes(0, 1)


def test_a_record_without_root_gets_one_before_all_others() -> None:
    script = read_script(SIMPLE)
    assert script.events == ("mix", "heat", "bake a cake", "decided to bake a cake")
    assert script.edges == {(3, 0), (3, 1), (0, 2), (1, 2)}


def test_shortcuts_are_no_edges_but_still_the_order() -> None:
    script = make_script("s", ["a", "b", "c"], [(0, 1), (1, 2), (0, 2)])
    assert script.edges == {(0, 1), (1, 2)}
    assert script.precedes(0, 2)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"scenario": " "}, "no scenario"),
        ({"gold_edges_for_prediction": ["0->1", "1->0"]}, "cycle"),
        ({"gold_edges_for_prediction": ["0->9"]}, "'9'"),
        ({"gold_edges_for_prediction": ["0 before 1"]}, "unreadable content"),
        ({"events": {"0": "mix", "1": "", "2": "bake"}}, "no text for event '1'"),
        ({"events": {}, "gold_edges_for_prediction": []}, "1 events"),
        ({"events": {str(i): "x" for i in range(41)}, "gold_edges_for_prediction": []}, "42 events"),
    ],
)
def test_what_cannot_be_learnt_from_says_why(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScriptError, match=problem):
        read_script({**SIMPLE, **change})


def test_a_file_lists_what_was_skipped(tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"
    path.write_text(json.dumps([SIMPLE, {**SIMPLE, "scenario": ""}, {"id": "odd"}]))
    file = read_scripts(path)
    assert len(file.scripts) == 1
    assert file.skipped == {"2": "has no scenario", "odd": "has neither events nor edges"}
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def _script(scenario: str) -> Script:
    return make_script(scenario, ["a", "b"], [(0, 1)])


@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.3, 0.5]),
    st.integers(0, 9),
)
def test_held_out_scripts_share_no_scenario_with_the_rest(names: list[str], share: float, seed: int) -> None:
    trained, held_out = hold_out([_script(name) for name in names], share, seed)
    assert sorted(s.scenario for s in [*trained, *held_out]) == sorted(names)
    assert not {s.scenario for s in trained} & {s.scenario for s in held_out}
    assert len(held_out) >= share * len(names)


def test_the_wording_decides_not_the_place() -> None:
    scripts = [_script(f"scenario {index}") for index in range(50)]
    held_out = {script.scenario for script in hold_out(scripts, 0.1, 3)[1]}
    assert {script.scenario for script in hold_out(scripts[::-1], 0.1, 3)[1]} == held_out
    assert {script.scenario for script in hold_out(scripts, 0.1, 4)[1]} != held_out
    assert hold_out([_script("Bake  a cake"), _script("bake a Cake")], 0.5, 0)[0] == []


@pytest.mark.data
def test_all_of_proscript_can_be_used(data_dir: Path) -> None:
    for name, count in (("proscript_dev.json", 1085), ("proscript_simple_train.json", 3252)):
        file = read_scripts(data_dir / "proscript" / name)
        assert len(file.scripts) == count
        assert not file.skipped
        for script in file.scripts:
            assert (
                sum(
                    not any(script.precedes(i, j) for i in range(len(script.events)))
                    for j in range(len(script.events))
                )
                == 1
            )
