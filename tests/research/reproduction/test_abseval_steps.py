"""Figure 12 of ABSEval: which scripts its quarters have."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.summary_pb2 import ScriptsSummary, Summary, VerdictFigures
from dramaturg_research.reproduction.abseval.rates import quantiles_of_steps


def test_refusals_are_no_scripts_of_0_steps() -> None:
    figures = [
        VerdictFigures(all_models=True, criterion="executable", tags={"steps": steps}, verdict_count=10)
        for steps in ("0", "3", "5", "7", "9")
    ]
    assert [*quantiles_of_steps(Summary(scripts=ScriptsSummary(figures=figures)))] == ["3", "5", "7", "9"]
