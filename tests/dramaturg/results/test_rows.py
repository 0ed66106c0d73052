"""What results of every kind say of what was judged."""

from __future__ import annotations

from typing import Any

import pytest

from dramaturg.api.common.v1.decision_pb2 import CHOICE_EITHER, CHOICE_OPTION_1
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_UNAVAILABLE
from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Provenance, Usage
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_JUDGE_UNAVAILABLE,
    ABSTAIN_REASON_NOT_APPLICABLE,
    ABSTAIN_REASON_PANEL_SPLIT,
    ABSTAIN_REASON_REFUSED,
    ABSTAIN_REASON_TIMED_OUT,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    OUTCOME_UNSPECIFIED,
    Assessment,
    Finding,
    Verdict,
)
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    ReplyComparison,
    ReplyRating,
    ReplyScore,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    GRAPH_TASK_GENERATE,
    GRAPH_TASK_PREDICT_EDGES,
    GraphsResult,
    GraphTask,
    MeasuredGraph,
)
from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, SampleError
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    CandidateResult,
    ScriptsResult,
)
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DECISION_PROMPT_NAIVE
from dramaturg.api.graph.v1.graph_service_pb2 import EdgeMeasures, EdgeScore, MeasureEditDistanceResponse
from dramaturg.api.graph.v1.script_graph_pb2 import Event, ScriptGraph
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_ABSTAIN,
    PREFERENCE_FIRST,
    PREFERENCE_SECOND,
    PREFERENCE_TIE,
    Ballot,
    ComparePairResponse,
    RoleVote,
)
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.api.judging.v1.text_scorer_service_pb2 import TextScore
from dramaturg.results.rows import flatten, judgements


def rows(**result: Any) -> list[RunResult]:
    return flatten(RunSample(index=7, sample_id="s", tags={"a": "b"}, **result))


def numbers(found: list[RunResult]) -> list[tuple[str, str, int, int, float | None]]:
    return [
        (r.model, r.measure, r.outcome, r.abstain_reason, r.value if r.HasField("value") else None)
        for r in found
    ]


def test_a_sample_without_a_result_has_no_judgements() -> None:
    assert flatten(RunSample()) == []
    assert flatten(RunSample(error=SampleError(code=STATUS_CODE_UNAVAILABLE))) == []


def verdict(criterion: str, outcome: int, **fields: Any) -> Verdict:
    return Verdict(criterion=criterion, outcome=outcome, **fields)  # type: ignore[arg-type] # an enum's value


def test_scripts_have_a_row_a_verdict_with_the_one_who_gave_it() -> None:
    alone = verdict(
        "alone", OUTCOME_FAIL, confidence=0.9, rationale="why", findings=[Finding(description="x")]
    )
    split = verdict("panel", OUTCOME_ABSTAIN, abstain_reason=ABSTAIN_REASON_PANEL_SPLIT)
    candidate = CandidateResult(
        candidate_id="c",
        model="m",
        verdicts=[alone, split],
        assessments=[
            CandidateAssessment(
                role="critic",
                judge="a",
                assessment=Assessment(
                    verdicts=[alone, verdict("panel", OUTCOME_PASS)], provenance=Provenance(name="A")
                ),
            ),
            CandidateAssessment(
                role="critic", judge="b", assessment=Assessment(verdicts=[verdict("panel", OUTCOME_FAIL)])
            ),
        ],
    )
    result = ScriptsResult(candidates=[candidate])
    first, second = rows(scripts=result)
    assert first == RunResult(
        sample_index=7,
        sample_id="s",
        tags={"a": "b"},
        model="m",
        candidate_id="c",
        measure="alone",
        outcome=OUTCOME_FAIL,
        value=0,
        confidence=0.9,
        role="critic",
        judge="a",
        rationale="why",
        findings=[Finding(description="x")],
        provenance=Provenance(name="A"),
    )
    assert numbers([second]) == [("m", "panel", OUTCOME_ABSTAIN, ABSTAIN_REASON_PANEL_SPLIT, None)]
    assert (second.role, second.judge, second.HasField("provenance")) == ("", "", False)
    short, _ = flatten(RunSample(index=7, sample_id="s", tags={"a": "b"}, scripts=result), texts=False)
    for words in ("rationale", "findings", "provenance"):
        first.ClearField(words)
    assert short == first


def test_decisions_are_right_wrong_or_not_to_be_told() -> None:
    naive = DECISION_PROMPT_NAIVE
    choices = [
        ModelChoice(model="a", prompt=naive, choice=CHOICE_OPTION_1, correct=True, text="1"),
        ModelChoice(model="b", prompt=naive, choice=CHOICE_EITHER, correct=False, options_swapped=True),
        ModelChoice(model="c", prompt=naive, choice=CHOICE_OPTION_1),  # nobody knows the right one
        ModelChoice(model="d", prompt=naive, abstain_reason=ABSTAIN_REASON_REFUSED),
    ]
    found = rows(decision=DecisionResult(choices=choices))
    assert numbers(found) == [
        ("a", "correct/naive", OUTCOME_PASS, 0, 1.0),
        ("b", "correct/naive, swapped", OUTCOME_FAIL, 0, 0.0),
        ("c", "correct/naive", OUTCOME_ABSTAIN, ABSTAIN_REASON_NOT_APPLICABLE, None),
        ("d", "correct/naive", OUTCOME_ABSTAIN, ABSTAIN_REASON_REFUSED, None),
    ]
    assert [row.label for row in found] == ["OPTION_1", "EITHER", "OPTION_1", ""]
    assert found[0].candidate_id != found[1].candidate_id
    assert found[0].rationale == "1"


def compared(preference: int, *votes: RoleVote) -> ComparePairResponse:
    return ComparePairResponse(preference=preference, votes=votes)  # type: ignore[arg-type] # an enum's value


@pytest.mark.parametrize(
    ("preference", "first"), [(PREFERENCE_FIRST, 1.0), (PREFERENCE_SECOND, 0.0), (PREFERENCE_TIE, 0.5)]
)
def test_a_comparison_is_a_row_for_each_of_the_two(preference: int, first: float) -> None:
    result = PairResult(
        first_model="a",
        second_model="b",
        comparisons=[PairComparison(method="llm", judge="j", comparison=compared(preference))],
    )
    one, other = rows(pair=result)
    assert numbers([one, other]) == [
        ("a", "win/llm", OUTCOME_UNSPECIFIED, 0, first),
        ("b", "win/llm", OUTCOME_UNSPECIFIED, 0, 1 - first),
    ]
    assert (one.label, other.label, one.role, one.judge) == ("b", "a", "pair-judge", "j")


def test_a_comparison_by_one_judge_says_why_and_how_sure_it_is() -> None:
    vote = RoleVote(confidence=0.75, ballots=[Ballot(rationale="shorter"), Ballot(rationale="shorter")])
    result = PairResult(comparisons=[PairComparison(method="llm", comparison=compared(PREFERENCE_TIE, vote))])
    for row in rows(pair=result):
        assert row.confidence == 0.75
        assert row.rationale.count("shorter") == 1


def test_a_comparison_that_nobody_made_abstains_for_both() -> None:
    votes = [RoleVote(preference=PREFERENCE_ABSTAIN, abstain_reason=ABSTAIN_REASON_TIMED_OUT)] * 2
    result = DialogueResult(
        comparisons=[
            ReplyComparison(
                first_model="a", second_model="b", comparison=compared(PREFERENCE_ABSTAIN, *votes)
            )
        ]
    )
    assert numbers(rows(dialogue=result)) == [
        (model, "win", OUTCOME_ABSTAIN, ABSTAIN_REASON_TIMED_OUT, None) for model in "ab"
    ]


def test_dialogues_have_ratings_and_scores() -> None:
    result = DialogueResult(
        ratings=[
            ReplyRating(model="a", judge="j", rating=Rating(value=7, rationale="good")),
            ReplyRating(model="b", judge="j", rating=Rating(abstain_reason=ABSTAIN_REASON_REFUSED)),
        ],
        scores=[
            ReplyScore(model="a", judge="t", attribute="toxicity", score=TextScore(value=0.25)),
            ReplyScore(model="b", judge="t", score=TextScore(abstain_reason=ABSTAIN_REASON_TIMED_OUT)),
        ],
    )
    found = rows(dialogue=result)
    assert numbers(found) == [
        ("a", "rating", OUTCOME_UNSPECIFIED, 0, 7.0),
        ("b", "rating", OUTCOME_ABSTAIN, ABSTAIN_REASON_REFUSED, None),
        ("a", "score/toxicity", OUTCOME_UNSPECIFIED, 0, 0.25),
        ("b", "score", OUTCOME_ABSTAIN, ABSTAIN_REASON_TIMED_OUT, None),
    ]
    assert found[0].rationale == "good"
    assert [row.role for row in found] == ["rating-judge"] * 2 + ["text-scorer"] * 2


EVENTS = ScriptGraph(events=[Event(id="1", text="mix"), Event(id="2", text="bake")])


def graphs(
    *measured: MeasuredGraph, task: GraphTask.ValueType = GRAPH_TASK_PREDICT_EDGES
) -> list[tuple[str, str, int, int, float | None]]:
    return numbers(rows(graphs=GraphsResult(reference=EVENTS, task=task, graphs=measured)))


def test_graphs_have_the_measures_that_were_wanted_or_why_not() -> None:
    score = EdgeScore(measures=EdgeMeasures(f1=0.5), exact_match=False)
    right = MeasuredGraph(model="a", graph=EVENTS, score=score)
    excluded = MeasuredGraph(model="b", graph=EVENTS, score=EdgeScore(exact_match=True))
    silent = MeasuredGraph(model="c", abstain_reason=ABSTAIN_REASON_REFUSED)
    broken = MeasuredGraph(model="d", graph=EVENTS, failures=["The edges are not scored: graph broke."])
    foreign = MeasuredGraph(model="e", graph=ScriptGraph(events=[Event(id="1", text="sing")]))
    assert graphs(right, excluded, silent, broken, foreign) == [
        ("a", "f1", OUTCOME_UNSPECIFIED, 0, 0.5),
        ("a", "exact_match", OUTCOME_FAIL, 0, 0.0),
        ("b", "f1", OUTCOME_ABSTAIN, ABSTAIN_REASON_NOT_APPLICABLE, None),
        ("b", "exact_match", OUTCOME_PASS, 0, 1.0),
        ("c", "f1", OUTCOME_ABSTAIN, ABSTAIN_REASON_REFUSED, None),
        ("c", "exact_match", OUTCOME_ABSTAIN, ABSTAIN_REASON_REFUSED, None),
        ("d", "f1", OUTCOME_ABSTAIN, ABSTAIN_REASON_JUDGE_UNAVAILABLE, None),
        ("d", "exact_match", OUTCOME_ABSTAIN, ABSTAIN_REASON_JUDGE_UNAVAILABLE, None),
        ("e", "f1", OUTCOME_ABSTAIN, ABSTAIN_REASON_NOT_APPLICABLE, None),
        ("e", "exact_match", OUTCOME_ABSTAIN, ABSTAIN_REASON_NOT_APPLICABLE, None),
    ]


def test_a_distance_comes_with_its_lower_bound() -> None:
    proven = MeasuredGraph(model="a", distance=MeasureEditDistanceResponse(distance=3, proven=True))
    bounded = MeasuredGraph(
        model="b", distance=MeasureEditDistanceResponse(distance=9, lower_bound=4, upper_bound=9)
    )
    silent = MeasuredGraph(model="c", abstain_reason=ABSTAIN_REASON_REFUSED)
    unmeasured = MeasuredGraph(model="d", graph=EVENTS)
    assert graphs(proven, bounded, silent, unmeasured, task=GRAPH_TASK_GENERATE) == [
        ("a", "edit_distance", OUTCOME_UNSPECIFIED, 0, 3.0),
        ("a", "edit_distance/lower_bound", OUTCOME_UNSPECIFIED, 0, 3.0),
        ("b", "edit_distance", OUTCOME_UNSPECIFIED, 0, 9.0),
        ("b", "edit_distance/lower_bound", OUTCOME_UNSPECIFIED, 0, 4.0),
        ("c", "edit_distance", OUTCOME_ABSTAIN, ABSTAIN_REASON_REFUSED, None),
        ("c", "edit_distance/lower_bound", OUTCOME_ABSTAIN, ABSTAIN_REASON_REFUSED, None),
        ("d", "edit_distance", OUTCOME_ABSTAIN, ABSTAIN_REASON_JUDGE_UNAVAILABLE, None),
        ("d", "edit_distance/lower_bound", OUTCOME_ABSTAIN, ABSTAIN_REASON_JUDGE_UNAVAILABLE, None),
    ]
    found = rows(graphs=GraphsResult(task=GRAPH_TASK_GENERATE, graphs=[bounded]))
    assert found[0].label == "4..9"


def test_a_graph_made_in_several_calls_says_all_of_them() -> None:
    def call(name: str) -> Provenance:
        return Provenance(
            name=name, completions=[CompletionReference(fingerprint=name)], usage=Usage(provider_call_count=1)
        )

    graph = MeasuredGraph(model="a", graph=EVENTS, score=EdgeScore(), provenances=[call("x"), call("y")])
    for row in rows(graphs=GraphsResult(reference=EVENTS, graphs=[graph])):
        assert [completion.fingerprint for completion in row.provenance.completions] == ["x", "y"]
        assert row.provenance.usage.provider_call_count == 2


def test_preferences_are_right_where_people_say_the_same() -> None:
    pair = PairResult(id="p", first_model="a", second_model="b", human_preference=PREFERENCE_FIRST)
    said = (PREFERENCE_FIRST, PREFERENCE_SECOND, PREFERENCE_TIE, PREFERENCE_ABSTAIN)
    for place, preference in enumerate(said):
        pair.comparisons.add(method="roles", judge=str(place)).comparison.preference = preference
    found = list(judgements(RunSample(pair=pair)))
    assert [one.value for one in found] == [True, False, False, None]
    assert (found[0].sample, found[0].subject, found[0].aspect) == ("p", "a and b", "roles by 0")
    pair.ClearField("human_preference")
    assert not list(judgements(RunSample(pair=pair)))


def test_graphs_have_the_f1_of_their_edges() -> None:
    graphs = GraphsResult()
    graphs.reference.id = "g"
    graphs.graphs.add(model="a").score.measures.f1 = 0.5
    graphs.graphs.add(model="b", abstain_reason=ABSTAIN_REASON_REFUSED)
    first, second = judgements(RunSample(graphs=graphs))
    assert (first.sample, first.subject, first.value) == ("g", "a", 0.5)
    assert (second.value, second.reason) == (None, ABSTAIN_REASON_REFUSED)


def test_a_sample_that_failed_says_nothing() -> None:
    assert not list(judgements(RunSample(sample_id="x")))
