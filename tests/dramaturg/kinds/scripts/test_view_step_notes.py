"""The report shows what a judge that carries out a script notes of its steps."""

from __future__ import annotations

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, StepNote
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment, CandidateResult, ScriptsResult
from dramaturg.kinds.scripts.view import view


def test_each_note_says_whether_the_step_can_be_carried_out_and_why() -> None:
    notes = [
        StepNote(step_index=0, needs="a hole; none", leaves="glue", outcome=verdict_pb2.OUTCOME_FAIL),
        StepNote(step_index=1, outcome=verdict_pb2.OUTCOME_ABSTAIN),
        StepNote(step_index=2, needs="air"),
    ]
    assessed = CandidateAssessment(judge="llm", assessment=Assessment(step_notes=notes))
    shown = view(0, ScriptsResult(candidates=[CandidateResult(candidate_id="a", assessments=[assessed])]))
    assert list(shown.subjects[0].notes) == [
        "llm, step 1 cannot be carried out - needs: a hole; none - after it: glue",
        "llm, step 2 can perhaps be carried out",
        "llm, step 3 is noted - needs: air",
    ]


def test_a_script_that_was_judged_as_one_text_says_so() -> None:
    result = ScriptsResult(candidates=[CandidateResult(candidate_id="a", reading=verdict_pb2.READING_TEXT)])
    (subject,) = view(0, result).subjects
    assert list(subject.notes) == ["judged as one text without steps, which results do not keep"]


def test_equal_notes_of_one_judge_are_said_once_for_all_of_their_steps() -> None:
    possible = [StepNote(step_index=place, outcome=verdict_pb2.OUTCOME_PASS) for place in (0, 1, 3)]
    notes = [*possible, StepNote(step_index=2, outcome=verdict_pb2.OUTCOME_FAIL)]
    assessed = [CandidateAssessment(judge=name, assessment=Assessment(step_notes=notes)) for name in "ab"]
    shown = view(0, ScriptsResult(candidates=[CandidateResult(candidate_id="c", assessments=assessed)]))
    assert list(shown.subjects[0].notes) == [
        "a, steps 1, 2, 4: each can be carried out",
        "a, step 3 cannot be carried out",
        "b, steps 1, 2, 4: each can be carried out",
        "b, step 3 cannot be carried out",
    ]
