"""Figures of AlignmentService as cells of tables and members of JSON objects."""

from __future__ import annotations

from dramaturg.api.alignment.v1.calibration_pb2 import CalibrationGroup, MeasureCalibrationResponse
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.cli.align.options import interval_methods, shown
from dramaturg.summaries.estimates import figures
from dramaturg.tables.model import Cell

GROUP = CalibrationGroup(
    brier_score=Estimate(value=0.2, lower=0.1, upper=0.3, interval_method="jackknife"),
    accuracy=Estimate(value=0.5, lower=0.4, upper=0.6, interval_method="wilson"),
    expected_calibration_error=Estimate(value=0.1, interval_withheld="its resamples are biased"),
    discrimination=Estimate(undefined="all answers are right"),
)


def test_a_cell_says_why_a_figure_has_no_interval() -> None:
    cell = shown(GROUP.brier_score)
    assert (cell.text, cell.value, cell.bounds) == ("0.200 [0.100, 0.300]", 0.2, (0.1, 0.3))
    found = shown(GROUP.expected_calibration_error)
    assert found == Cell("0.100", 0.1, note="no interval: its resamples are biased")
    assert shown(GROUP.discrimination) == Cell("–", note="undefined: all answers are right")


def test_the_methods_of_all_intervals_are_named_once() -> None:
    response = MeasureCalibrationResponse(groups=[GROUP, GROUP])
    assert interval_methods(response) == ["intervals: jackknife; wilson"]
    assert not interval_methods(MeasureCalibrationResponse())


def test_json_has_methods_and_reasons_by_figure() -> None:
    names = ("brier_score", "expected_calibration_error", "discrimination")
    assert figures(GROUP, names) == {
        "brier_score": 0.2,
        "brier_score_interval": [0.1, 0.3],
        "expected_calibration_error": 0.1,
        "discrimination": None,
        "interval_methods": {"brier_score": "jackknife"},
        "interval_withheld": {"expected_calibration_error": "its resamples are biased"},
        "undefined": {"discrimination": "all answers are right"},
    }
