from __future__ import annotations

from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_CALL_REJECTED,
    ABSTAIN_REASON_NOT_SUPPORTED,
    ABSTAIN_REASON_TIMED_OUT,
    Assessment,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult, ScriptsResult
from dramaturg.judge.verdicts import abstained, passed
from dramaturg.results.coverage import abstention_words, judgement_reasons


def test_what_a_shadow_says_is_no_judgement() -> None:
    """A run without a judgement ends early, whatever a shadow of its judges says."""
    late = abstained("clear", ABSTAIN_REASON_TIMED_OUT, "The judge is late.")
    candidate = CandidateResult(verdicts=[late])
    for verdict in (passed("clear"), abstained("clear", ABSTAIN_REASON_CALL_REJECTED, "The shadow is lost.")):
        candidate.shadows.add(role="critic", judge="b", assessment=Assessment(verdicts=[verdict]))
    result = ScriptsResult(candidates=[candidate])
    assert [one.reason for one in judgement_reasons(result)] == [ABSTAIN_REASON_TIMED_OUT]
    assert abstention_words(result) == "The judge is late."


def test_the_words_of_a_result_are_those_of_an_abstention_that_counts() -> None:
    aside = abstained("polite", ABSTAIN_REASON_NOT_SUPPORTED, "There are no rules for it.")
    late = abstained("clear", ABSTAIN_REASON_TIMED_OUT, "The judge is late.")
    one = ScriptsResult(candidates=[CandidateResult(verdicts=[aside])])
    both = ScriptsResult(candidates=[CandidateResult(verdicts=[aside, late])])
    assert abstention_words(one) == "There are no rules for it."
    assert abstention_words(both) == "The judge is late."
