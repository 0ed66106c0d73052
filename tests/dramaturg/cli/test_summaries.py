"""The tables and the JSON of summaries."""

from __future__ import annotations

import json

import pytest

from dramaturg.api.evaluation.v1.summary_pb2 import (
    DecisionFigures,
    DecisionsSummary,
    ScriptsSummary,
    Summary,
    VerdictFigures,
)
from dramaturg.cli.summaries import as_json, show_summary, summary_options
from dramaturg.cli.terminal import Terminal


def test_json_has_the_names_of_the_contract_and_null_for_what_is_absent() -> None:
    figures = DecisionFigures(model="m", tags={"b": "2", "a": "1"})
    summary = Summary(sample_count=2**53, decisions=DecisionsSummary(figures=[figures]))
    found = as_json(summary)
    assert found["sample_count"] == 2**53
    assert "scripts" not in found
    assert found["problems"] == []
    (one,) = found["decisions"]["figures"]
    assert (one["model"], one["prompt"], one["human_accuracy"], one["accuracy"]) == ("m", "", None, None)
    assert list(one["tags"].items()) == [("a", "1"), ("b", "2")]
    assert json.loads(json.dumps(found)) == found


def test_groupings_are_tags_joined_by_commas() -> None:
    options = summary_options(["level", "format,level", ","], aced_kept=True, seed=3)
    assert [list(one.tags) for one in options.groupings] == [["level"], ["format", "level"]]
    assert (options.aced_kept, options.seed) == (True, 3)
    assert not summary_options(None).groupings


def test_each_grouping_is_a_table_with_its_tags_in_the_requested_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    groups: tuple[dict[str, str], ...] = (
        {},
        {"level": "hard"},
        {"level": "hard", "format": "short"},
        {"level": "", "format": "long"},
    )
    figures = [VerdictFigures(tags=tags, all_models=True, verdict_count=1, pass_count=1) for tags in groups]
    options = summary_options(["level", "level,format"])
    summary = Summary(scripts=ScriptsSummary(figures=figures), options=options, problems=["gone"])
    show_summary(Terminal(width=200), summary)
    out = capsys.readouterr().out
    heads = [line.split()[:3] for line in out.splitlines() if "ABSTAIN" in line]
    assert heads == [["criterion", "PASS", "FAIL"], ["level", "PASS", "FAIL"], ["level", "format", "PASS"]]
    rows = [line.split()[:2] for line in out.splitlines()]
    assert ["hard", "short"] in rows
    assert ["(none)", "long"] in rows
    assert "Figures that are missing: Gone." in out


def test_intervals_of_shares_have_the_unit_of_the_shares(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary()
    one = summary.scripts.figures.add(all_models=True, criterion="executable", verdict_count=4, pass_count=3)
    one.fail_count = 1
    one.pass_rate.value, one.pass_rate.lower, one.pass_rate.upper = 0.75, 0.25, 0.9875
    show_summary(Terminal(width=100), summary)
    assert "75.0 %  25.0 to 98.8 %" in capsys.readouterr().out
