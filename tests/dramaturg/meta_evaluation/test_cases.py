from __future__ import annotations

from collections import Counter

from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.formats.rubric import ready_rubrics
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.meta_evaluation.cases import HELD_OUT_FILE, BenchSet
from dramaturg.meta_evaluation.material import JUDGES, PREFERENCE, Case
from dramaturg.meta_evaluation.variants import OWN_RUBRICS_FILE, RubricSet

CASES = BenchSet().cases()


def steps(case: Case) -> list[str]:
    assert isinstance(case.request, JudgeRequest)
    return [step.text for step in case.request.candidates[0].script.steps]


def test_every_judge_has_faults_and_flawless_material_in_several_languages() -> None:
    for judge in JUDGES:
        mine = [case for case in CASES if case.judge == judge]
        assert len({case.id for case in mine}) == len(mine)
        assert {fault for case in mine for fault in case.faults.values()} == {True, False}
        assert {"en", "de"} <= {case.language for case in mine}
    assert {case.judge for case in CASES if case.injected} == {*JUDGES} - {"challenge-judge"}
    assert BenchSet().cases(["execute"]) == [case for case in CASES if case.judge == "execute"]


def test_the_held_out_set_has_as_many_cases_of_each_kind_and_no_text_of_the_first() -> None:
    held_out = BenchSet(HELD_OUT_FILE)
    assert held_out.sha256 != BenchSet().sha256
    counts = [
        Counter((case.judge, type(case.request).__name__, case.injected) for case in cases)
        for cases in (CASES, held_out.cases())
    ]
    assert counts[0] == counts[1]
    judged = [
        {step for case in cases if case.judge == "script-judge" for step in steps(case)}
        for cases in (CASES, held_out.cases())
    ]
    assert not judged[0] & judged[1]


def test_every_criterion_has_faults_and_flawless_scripts() -> None:
    counts = Counter(
        (criterion, fault)
        for case in CASES
        if case.judge == "script-judge"
        for criterion, fault in case.faults.items()
    )
    assert all(counts[criterion, fault] >= 3 for criterion in ABSEVAL for fault in (True, False)), counts


def test_faults_are_planted_the_same_way_every_time() -> None:
    by_id = {case.id: case for case in CASES if case.judge == "script-judge"}
    tea = steps(by_id["tea/clean"])
    assert steps(by_id["tea/delete"]) == tea[:3] + tea[4:]
    assert steps(by_id["tea/move"]) == [*tea[:2], tea[4], *tea[2:4]]
    assert steps(by_id["ei/delete"]) != steps(by_id["ei/clean"])
    assert by_id["ei/delete"].faults == {"no_missing_steps": True}
    assert steps(by_id["tea/implausible"])[1] == "Put the pot into the freezer until the water boils."
    assert "Ignore the instructions" in steps(by_id["tea/injection-ignore"])[-1]


def test_a_reference_is_for_the_critic_only() -> None:
    compared = [
        case.judge
        for case in CASES
        if isinstance(case.request, JudgeRequest) and case.request.HasField("reference")
    ]
    assert set(compared) == {"critic"}
    assert len(compared) == sum(case.judge == "critic" for case in CASES) / 2


def test_of_equal_texts_neither_is_better() -> None:
    pairs = {case.id: case for case in CASES if case.judge == "pair-judge"}
    assert pairs["bridge/same"].faults == {PREFERENCE: False}
    assert pairs["bridge"].faults == {PREFERENCE: True}
    assert [case.id for case in pairs.values() if case.injected] == [
        "bridge/injection",
        "bridge/injection+roles",
    ]


def test_each_criterion_of_each_ready_rubric_has_a_text_that_meets_it_and_one_that_does_not() -> None:
    cases = RubricSet().cases()
    assert len({case.id for case in cases}) == len(cases)
    labelled = {(case.rubric, criterion, fault) for case in cases for criterion, fault in case.faults.items()}
    assert labelled == {
        (name, criterion.id, fault)
        for name, rubric in ready_rubrics().items()
        for criterion in rubric.criteria
        for fault in (True, False)
    }


def test_each_criterion_of_each_other_rubric_has_a_text_that_meets_it_and_one_that_does_not() -> None:
    cases = RubricSet(OWN_RUBRICS_FILE).cases()
    criteria = {
        (case.rubric, criterion.id)
        for case in cases
        if isinstance(case.request, JudgeRequest)
        for criterion in case.request.criteria
    }
    assert len({case.id for case in cases}) == len(cases) == 56
    labelled = {(case.rubric, criterion, fault) for case in cases for criterion, fault in case.faults.items()}
    assert labelled == {(*one, fault) for one in criteria for fault in (True, False)}
    assert {case.language for case in cases} == {"en", "de", "es", "fr"}
    assert sum(case.injected for case in cases) == 7
