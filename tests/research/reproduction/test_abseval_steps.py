"""Figure 12 of ABSEval: which scripts its quarters have."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.summary_pb2 import ScriptsSummary, Summary, VerdictFigures
from dramaturg_research.reproduction.abseval.rates import quarters_of_steps


def test_refusals_are_no_scripts_of_0_steps() -> None:
    figures = [
        VerdictFigures(all_models=True, criterion="executable", tags={"steps": steps}, verdict_count=10)
        for steps in ("0", "3", "10", "7", "9")
    ]
    quarters = quarters_of_steps(Summary(scripts=ScriptsSummary(figures=figures)))
    assert list(quarters.items()) == [("3", "3"), ("7", "7"), ("9", "9"), ("10", "10")]


def test_scripts_of_equal_numbers_of_steps_stay_together() -> None:
    figures = [
        VerdictFigures(all_models=True, criterion="executable", tags={"steps": steps}, verdict_count=count)
        for steps, count in (("4", 2), ("5", 3), ("6", 15), ("8", 1), ("9", 3))
    ]
    quarters = quarters_of_steps(Summary(scripts=ScriptsSummary(figures=figures)))
    assert quarters == {"4": "4 to 5", "5": "4 to 5", "6": "6", "8": "8 to 9", "9": "8 to 9"}
