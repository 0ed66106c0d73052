from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Outcome, Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.verdicts import abstained, failed, finding, passed
from gateway.evaluations.panels import decide

PASS, FAIL, ABSTAIN = "PASS", "FAIL", "ABSTAIN"
REASONS = (verdict_pb2.ABSTAIN_REASON_REFUSED, verdict_pb2.ABSTAIN_REASON_TIMED_OUT)


def ballot(vote: str | int) -> Verdict:
    if vote == PASS:
        return passed("executable")
    if vote == FAIL:
        kind = verdict_pb2.FINDING_KIND_IMPLAUSIBLE_STEP
        return failed("executable", [finding(kind, "It burns.", steps=[1])])
    return abstained("executable", verdict_pb2.AbstainReason.ValueType(int(vote)))


def assess(*verdicts: Verdict, judge: str = "j") -> CandidateAssessment:
    return CandidateAssessment(judge=judge, assessment=Assessment(verdicts=verdicts))


def outcome(verdict: Verdict) -> str:
    return Outcome.Name(verdict.outcome).removeprefix("OUTCOME_")


@given(st.lists(st.sampled_from([PASS, FAIL, *REASONS]), min_size=1, max_size=7))
def test_more_than_half_of_those_that_did_not_abstain_decide(votes: list[str | int]) -> None:
    verdict = decide([assess(ballot(vote)) for vote in votes], ABSEVAL)[0]
    for_it, against = votes.count(PASS), votes.count(FAIL)
    if for_it > against:
        assert outcome(verdict) == PASS
    elif against > for_it:
        assert outcome(verdict) == FAIL
    elif for_it:
        assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_PANEL_SPLIT
    else:
        assert verdict.abstain_reason == votes[0]
    assert (outcome(verdict) == ABSTAIN) == (verdict.abstain_reason != 0)


def test_the_findings_of_the_majority_stand_once() -> None:
    verdict = decide([assess(ballot(vote)) for vote in (FAIL, FAIL, PASS)], ABSEVAL)[0]
    assert len(verdict.findings) == 1


def test_one_judges_verdict_is_left_as_it_is() -> None:
    verdict = passed("executable", rationale="Fine.", score=0.5, confidence=0.25)
    assert decide([assess(verdict)], ABSEVAL) == [verdict]


def test_verdicts_stand_in_the_papers_order_then_others_by_name() -> None:
    names = ["zest", *reversed(ABSEVAL), "beauty"]
    verdicts = decide([assess(*map(passed, names[:4])), assess(*map(passed, names[4:]))], ABSEVAL)
    assert [verdict.criterion for verdict in verdicts] == [*ABSEVAL, "beauty", "zest"]
