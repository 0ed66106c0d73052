"""The figures of verdicts count each verdict once, however they are grouped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_REFUSED,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    Verdict,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VerdictFigures
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.verdicts import abstained, failed, passed
from gateway.evaluations.scripts.summary import JudgedCandidate, ScriptsFigures

NO_STATISTICS: Any = None
"""Figures of verdicts ask no service."""

verdicts = st.builds(
    Verdict,
    criterion=st.sampled_from([*ABSEVAL, "tone"]),
    outcome=st.sampled_from([OUTCOME_PASS, OUTCOME_FAIL, OUTCOME_ABSTAIN]),
    abstain_reason=st.integers(1, 11),
)
candidates = st.builds(CandidateResult, model=st.sampled_from("ab"), verdicts=st.lists(verdicts, max_size=9))


def figures_of(samples: Sequence[Sequence[CandidateResult]]) -> Sequence[VerdictFigures]:
    figures, summary = ScriptsFigures(), Summary()
    for sample in samples:
        figures.add([JudgedCandidate(candidate, "t", {}) for candidate in sample])
    figures.write({}, summary, NO_STATISTICS)
    return summary.scripts.figures


def counts(figures: Sequence[VerdictFigures]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in figures:
        total.update(passed=one.pass_count, failed=one.fail_count, all=one.verdict_count)
        total.update(one.abstentions_by_reason)
    return total


@given(st.lists(st.lists(candidates, max_size=3), max_size=5))
def test_every_verdict_is_counted_once_in_each_table(samples: list[list[CandidateResult]]) -> None:
    figures = figures_of(samples)
    expected = sum(len(candidate.verdicts) for sample in samples for candidate in sample)
    everything = counts([one for one in figures if one.all_models and not one.criterion])
    assert everything["all"] == expected
    by_criterion = [one for one in figures if one.all_models and one.criterion]
    by_model = [one for one in figures if not one.all_models and not one.criterion]
    by_both = [one for one in figures if not one.all_models and one.criterion]
    for table in (by_criterion, by_model, by_both):
        assert counts(table) == everything


def test_criteria_stand_in_the_order_of_the_paper_then_by_name() -> None:
    names = ["zest", "beauty", *reversed(ABSEVAL)]
    judged = [Verdict(criterion=name, outcome=OUTCOME_PASS) for name in names]
    figures = figures_of([[CandidateResult(model="a", verdicts=judged)]])
    listed = [one.criterion for one in figures if one.all_models and one.criterion]
    assert listed == [*ABSEVAL, "beauty", "zest"]


def test_judges_of_a_panel_are_compared_by_criterion() -> None:
    figures, summary = ScriptsFigures(), Summary()
    samples = (
        ([passed("executable"), failed("order_correct")], [failed("executable"), failed("order_correct")]),
        ([passed("executable")], [passed("executable")]),
        ([passed("executable")], [abstained("executable", ABSTAIN_REASON_REFUSED)]),
    )
    for panel in samples:
        candidate = CandidateResult(candidate_id="a", model="m")
        for number, some in enumerate(panel):
            one = candidate.assessments.add(candidate_id="a", role="execute", judge=f"j{number}")
            one.assessment.verdicts.extend(some)
        figures.add([JudgedCandidate(candidate, "t", {})])
    figures.write({}, summary, NO_STATISTICS)
    found = [(one.criterion, one.text_count, one.differing_count) for one in summary.scripts.panels]
    assert found == [("executable", 2, 1), ("order_correct", 1, 0)]
