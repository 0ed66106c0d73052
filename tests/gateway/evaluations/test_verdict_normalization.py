"""A judge written by others cannot change how many verdicts there are, nor pass off an unclear one."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment, Finding, Span, StepNote, Verdict
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.quotes import Sources
from dramaturg.judge.roles import COMMONSENSE, CRITIC
from dramaturg.judge.verdicts import failed, passed
from gateway.evaluations.judge_answers import CORRECTIONS
from gateway.evaluations.verdict_normalization import MAX_QUOTES, check_quotes, expected_criteria, normalize

STEPS = 3
UNSPECIFIED = verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
DECIDED = (verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL)

numbers = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
findings = st.lists(st.builds(Finding, step_indices=st.lists(st.integers(0, 5), max_size=4)), max_size=2)
verdicts = st.builds(
    Verdict,
    criterion=st.sampled_from([*CRITIC.criteria, "executable", "beauty", ""]),
    outcome=st.integers(0, 5),
    abstain_reason=st.one_of(st.just(0), st.integers(0, 20)),
    score=numbers,
    confidence=numbers,
    findings=findings,
)
identities = st.one_of(
    st.none(),
    st.builds(Identity, criteria=st.lists(st.sampled_from([*ABSEVAL, "beauty", "tone", ""]), max_size=6)),
)


@given(st.lists(verdicts, max_size=8), identities)
def test_whatever_a_judge_answers_each_criterion_has_one_sound_verdict(
    answered: list[Verdict], identity: Identity | None
) -> None:
    expected = expected_criteria(CRITIC, identity, frozenset(ABSEVAL))
    normalized = normalize(Assessment(verdicts=answered), expected, identity, STEPS)
    assert [verdict.criterion for verdict in normalized.verdicts] == list(expected)
    for verdict in normalized.verdicts:
        assert verdict.outcome in (*DECIDED, verdict_pb2.OUTCOME_ABSTAIN)
        assert (verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN) == (verdict.abstain_reason != UNSPECIFIED)
        for field in ("score", "confidence"):
            assert not verdict.HasField(field) or 0 <= getattr(verdict, field) <= 1
        for finding in verdict.findings:
            indices = list(finding.step_indices)
            assert indices == sorted(set(indices))
            assert all(index < STEPS for index in indices)


@given(st.lists(verdicts, max_size=8))
def test_a_pass_or_fail_is_what_the_judge_said_clearly(answered: list[Verdict]) -> None:
    normalized = normalize(Assessment(verdicts=answered), CRITIC.criteria, None, STEPS)
    for verdict in normalized.verdicts:
        mine = [one for one in answered if one.criterion == verdict.criterion]
        if verdict.outcome in DECIDED:
            assert {one.outcome for one in mine} == {verdict.outcome}
            assert {one.abstain_reason for one in mine} == {UNSPECIFIED}
        elif not mine:
            assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE


@given(st.lists(st.integers(0, 5), max_size=8))
def test_notes_are_about_steps_of_the_candidate_once_each_in_order(steps: list[int]) -> None:
    notes = [StepNote(step_index=step, needs="a pan") for step in steps]
    answered = Assessment(verdicts=map(passed, CRITIC.criteria), step_notes=notes)
    normalized = normalize(answered, CRITIC.criteria, None, STEPS)
    assert [note.step_index for note in normalized.step_notes] == sorted({*steps} & {*range(STEPS)})
    dropped = "dropped the notes" in normalized.provenance.parameters.get(CORRECTIONS, "")
    assert dropped == any(step >= STEPS for step in steps)


def test_a_sound_answer_is_left_as_it_is() -> None:
    answer = Assessment(verdicts=[passed(criterion, score=0.5) for criterion in CRITIC.criteria])
    normalized = normalize(answer, CRITIC.criteria, None, STEPS)
    assert list(normalized.verdicts) == list(answer.verdicts)
    assert CORRECTIONS not in normalized.provenance.parameters


def test_what_was_corrected_stands_in_the_provenance() -> None:
    odd = Verdict(
        criterion="executable",
        outcome=verdict_pb2.OUTCOME_FAIL,
        score=math.inf,
        findings=[Finding(step_indices=[9, 1, 1])],
    )
    normalized = normalize(Assessment(verdicts=[odd, passed("beauty")]), ("executable",), None, STEPS)
    assert normalized.provenance.parameters[CORRECTIONS] == (
        "dropped the score inf of executable, which is not in [0, 1]; "
        "dropped the steps [9] from a finding of executable: the candidate has 3; "
        "dropped a verdict on 'beauty', which was not asked"
    )
    assert list(normalized.verdicts[0].findings[0].step_indices) == [1]


def test_a_criterion_that_the_judge_never_declared_is_not_supported() -> None:
    normalized = normalize(Assessment(), ("executable",), Identity(criteria=["tone"]), STEPS)
    assert normalized.verdicts[0].abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED


def test_the_answer_itself_is_not_changed() -> None:
    answer = Assessment(verdicts=[Verdict(criterion="executable", outcome=verdict_pb2.OUTCOME_PASS, score=5)])
    normalize(answer, ("executable",), None, STEPS)
    assert answer.verdicts[0].score == 5


def test_a_criterion_of_the_paper_belongs_to_its_own_role() -> None:
    identity = Identity(criteria=["order_correct", "tone", "executable", "brevity"])
    assert expected_criteria(COMMONSENSE, identity, frozenset(ABSEVAL)) == ("executable", "brevity", "tone")


def test_an_unknown_reason_of_a_newer_judge_is_kept() -> None:
    newer = AbstainReason.ValueType(99)
    verdict = Verdict(criterion="executable", outcome=verdict_pb2.OUTCOME_ABSTAIN, abstain_reason=newer)
    normalized = normalize(Assessment(verdicts=[verdict]), ("executable",), None, STEPS)
    assert normalized.verdicts[0].abstain_reason == 99


def test_a_pass_with_findings_is_contradictory() -> None:
    verdict = passed("executable")
    verdict.findings.add(step_indices=[0])
    (normalized,) = normalize(Assessment(verdicts=[verdict]), ["executable"], None, STEPS).verdicts
    assert normalized.outcome == verdict_pb2.OUTCOME_ABSTAIN
    assert normalized.abstain_reason == verdict_pb2.ABSTAIN_REASON_CONTRADICTORY
    assert len(normalized.findings) == 1


def test_quotes_beyond_the_limit_are_no_evidence() -> None:
    spans = [Span(quote="words")] * MAX_QUOTES
    verdicts = [failed("first", [Finding(spans=spans)]), failed("second", [Finding(spans=spans[:1])])]
    assessment = Assessment(verdicts=verdicts)
    check_quotes(assessment, lambda: Sources(Task(goal="g"), ["some words"], [], ""))
    first, second = assessment.verdicts
    assert first.outcome == verdict_pb2.OUTCOME_FAIL
    assert all(span.found for span in first.findings[0].spans)
    assert second.abstain_reason == verdict_pb2.ABSTAIN_REASON_CONTRADICTORY
    assert "more than 100 times" in second.rationale
    assert not second.findings[0].spans


def test_what_is_sound_stays_as_it_is() -> None:
    verdict = Verdict(criterion="executable", outcome=verdict_pb2.OUTCOME_FAIL)
    verdict.score, verdict.confidence = 0.0, 1.0
    verdict.findings.add(step_indices=[0, 2])
    answered = Assessment(verdicts=[verdict])
    assert normalize(answered, ["executable"], None, STEPS) is answered
    for wrong in ([2, 0], [1, 1], [0, STEPS]):
        unsound = Assessment(verdicts=[verdict])
        unsound.verdicts[0].findings.add(step_indices=wrong)
        normalized = normalize(unsound, ["executable"], None, STEPS)
        kept = sorted({index for index in wrong if index < STEPS})
        assert list(normalized.verdicts[0].findings[1].step_indices) == kept
