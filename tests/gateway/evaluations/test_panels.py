from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Outcome, UnitVerdict, Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.roles import CRITIC
from dramaturg.judge.verdicts import abstained, failed, finding, is_unit_sound, of_units, passed, scored
from dramaturg.service.threads import TenantTurns
from gateway.evaluations.panels import decide
from gateway.judges.identity import JudgeIdentity
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment
from gateway.settings import JudgeEntry, PanelRule, PanelTable

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


def of_calls(*votes: str) -> Verdict:
    """A verdict on the calls of the second turn."""
    return of_units(
        "executable",
        [
            UnitVerdict(
                turn_index=1,
                call_index=call,
                outcome=Outcome.Value(f"OUTCOME_{vote}"),
                abstain_reason=REASONS[0] if vote == ABSTAIN else verdict_pb2.ABSTAIN_REASON_UNSPECIFIED,
            )
            for call, vote in enumerate(votes)
        ],
    )


def test_turns_and_calls_are_decided_by_the_rule_of_the_panel_each_by_itself() -> None:
    judged = [
        of_calls(PASS, FAIL, PASS),
        of_calls(FAIL, FAIL, ABSTAIN),
        ballot(REASONS[1]),
        of_calls(PASS, PASS, PASS),
    ]
    verdict = decide([assess(one) for one in judged], ABSEVAL)[0]
    assert [(one.turn_index, one.call_index) for one in verdict.units] == [(1, 0), (1, 1), (1, 2)]
    outcomes = [Outcome.Name(one.outcome).removeprefix("OUTCOME_") for one in verdict.units]
    assert (outcome(verdict), outcomes) == (FAIL, [PASS, FAIL, PASS])
    assert all(map(is_unit_sound, verdict.units))
    # The judge that abstained from the whole votes on no call.
    strict = decide([assess(one) for one in judged], ABSEVAL, seats("majority", 4, (1, 1, 1, 1)))[0]
    assert [one.abstain_reason for one in strict.units] == [REASONS[1], REASONS[1], REASONS[0]]


def test_one_judges_verdict_is_left_as_it_is() -> None:
    verdict = passed("executable", rationale="Fine.", score=0.5, confidence=0.25)
    assert decide([assess(verdict)], ABSEVAL) == [verdict]


def test_verdicts_stand_in_the_papers_order_then_others_by_name() -> None:
    names = ["zest", *reversed(ABSEVAL), "beauty"]
    verdicts = decide([assess(*map(passed, names[:4])), assess(*map(passed, names[4:]))], ABSEVAL)
    assert [verdict.criterion for verdict in verdicts] == [*ABSEVAL, "beauty", "zest"]


def seats(rule: PanelRule, quorum: int | None, weights: Sequence[float]) -> Sequence[JudgeAssignment]:
    """The members a, b and so on of a registered panel."""
    members = [{"judge": name, "weight": weight} for name, weight in zip("abcde", weights, strict=False)]
    table = PanelTable.model_validate({"rule": rule, "members": members, "quorum": quorum})
    entry = JudgeEntry(role="critic", name="trio", panel=table)
    channel = cast("grpc.aio.Channel", None)
    panel = Judge(
        CRITIC,
        "trio",
        "",
        default=False,
        channel=channel,
        turns=TenantTurns(1, 1),
        entry=entry,
        identity=JudgeIdentity(channel, ""),
    )
    return [JudgeAssignment(panel, "", panel, weight) for weight in weights]


def panel_verdict(
    votes: Sequence[Verdict], rule: PanelRule, quorum: int | None = None, weights: Sequence[float] = ()
) -> Verdict:
    assessments = [assess(vote, judge=name) for name, vote in zip("abcde", votes, strict=False)]
    return decide(assessments, ABSEVAL, seats(rule, quorum, weights or [1] * len(votes)))[0]


P, F, NONE = ballot(PASS), ballot(FAIL), ballot(verdict_pb2.ABSTAIN_REASON_TIMED_OUT)


@pytest.mark.parametrize(
    ("rule", "votes", "expected"),
    [
        ("majority", [P, P, F], PASS),
        ("majority", [P, F, F], FAIL),
        ("majority", [P, F, NONE], ABSTAIN),
        ("unanimous", [P, P, P], PASS),
        ("unanimous", [F, F, NONE], FAIL),
        ("unanimous", [P, P, F], ABSTAIN),
        ("any-fail", [P, P, F], FAIL),
        ("any-fail", [P, P, NONE], PASS),
        ("mean", [P, P, F], PASS),
        ("mean", [P, F, NONE], ABSTAIN),
    ],
)
def test_a_rule_makes_one_verdict(rule: PanelRule, votes: list[Verdict], expected: str) -> None:
    verdict = panel_verdict(votes, rule)
    assert outcome(verdict) == expected
    if expected == ABSTAIN:
        assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_PANEL_SPLIT
    assert [vote.judge for vote in verdict.votes] == ["a", "b", "c"]
    assert [vote.outcome for vote in verdict.votes] == [vote.outcome for vote in votes]


def test_members_that_are_one_judge_are_told_apart_by_their_models() -> None:
    members = [
        replace(one, model=name)
        for one, name in zip(seats("majority", None, [1, 1]), ("big", ""), strict=True)
    ]
    verdict = decide([assess(P, judge="trio"), assess(F, judge="trio")], ABSEVAL, members)[0]
    assert verdict.rationale == "Panel 'trio' (majority): trio@big PASS, trio FAIL."


def test_too_few_votes_abstain_with_the_reason_of_a_member() -> None:
    verdict = panel_verdict([P, NONE, NONE], "majority")
    assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_TIMED_OUT
    assert verdict.rationale == (
        "Panel 'trio' (majority): a PASS, b ABSTAIN (TIMED_OUT), c ABSTAIN (TIMED_OUT). "
        "1 of 3 voted; the quorum is 2."
    )
    assert outcome(panel_verdict([P, NONE, NONE], "majority", quorum=1)) == PASS
    assert outcome(panel_verdict([P, P, NONE], "majority", quorum=3)) == ABSTAIN


def test_weights_decide() -> None:
    assert outcome(panel_verdict([P, F, F], "weighted", weights=[3, 1, 1])) == PASS
    assert outcome(panel_verdict([P, F, F], "weighted", weights=[2, 1, 1])) == ABSTAIN
    assert outcome(panel_verdict([P, P, F], "weighted", weights=[0.1, 0.2, 0.3])) == ABSTAIN
    verdict = panel_verdict([P, F, F], "weighted", weights=[1.5, 1, 1])
    assert outcome(verdict) == FAIL
    assert [vote.weight for vote in verdict.votes] == [1.5, 1, 1]
    assert len(verdict.findings) == 1


def test_the_mean_of_scores_decides() -> None:
    votes = [
        passed("executable", score=0.9),
        failed("executable", [finding(verdict_pb2.FINDING_KIND_IMPLAUSIBLE_STEP, "x")], score=0.3),
        passed("executable"),
    ]
    verdict = panel_verdict(votes, "mean")
    assert outcome(verdict) == PASS
    assert verdict.score == pytest.approx((0.9 + 0.3 + 1) / 3)


@pytest.mark.parametrize(
    ("rule", "weights", "expected"),
    [
        ("majority", (), 3.0),
        ("mean", (), 3.0),
        ("any-fail", (), 1.0),
        ("unanimous", (), None),
        ("weighted", (1, 1, 2), 3.5),
    ],
)
def test_scores_of_a_scale(rule: PanelRule, weights: tuple[float, ...], expected: float | None) -> None:
    verdict = panel_verdict([scored("clear", value) for value in (1, 3, 5)], rule, weights=weights)
    assert (verdict.score if verdict.HasField("score") else None) == expected
    same = panel_verdict([scored("clear", 4), scored("clear", 4)], rule)
    assert same.score == 4


def test_a_reason_that_this_version_does_not_know_is_a_number() -> None:
    unknown = Verdict(
        criterion=P.criterion,
        outcome=verdict_pb2.OUTCOME_ABSTAIN,
        abstain_reason=verdict_pb2.AbstainReason.ValueType(999),
    )
    verdict = decide([assess(P, judge="a"), assess(unknown, judge="b")], ABSEVAL)[0]
    assert outcome(verdict) == PASS
    assert verdict.rationale == "Panel: a PASS, b ABSTAIN (REASON_999)."


def test_a_panel_beside_a_judge_has_one_vote() -> None:
    members = seats("any-fail", None, [1, 1])
    alone = JudgeAssignment(members[0].judge, "")
    votes = [assess(P, judge="a"), assess(F, judge="b"), assess(P, judge="single"), assess(P, judge="other")]
    verdict = decide(votes, ABSEVAL, [*members, alone, alone])[0]
    assert outcome(verdict) == PASS
    assert [(vote.judge, vote.outcome) for vote in verdict.votes] == [
        ("trio", verdict_pb2.OUTCOME_FAIL),
        ("single", verdict_pb2.OUTCOME_PASS),
        ("other", verdict_pb2.OUTCOME_PASS),
    ]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"members": ["a"]}, "at least 2"),
        ({"members": ["a", "a"]}, "more than once: a"),
        ({"members": ["a", "b"], "quorum": 3}, "a quorum of 3 and 2 members"),
        ({"members": ["a", {"judge": "b", "weight": 2}]}, "weights, which the rule 'majority'"),
        ({"members": ["a", "b"], "rule": "dictator"}, "rule"),
    ],
)
def test_panels_that_cannot_be_used_are_refused(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        PanelTable.model_validate(fields)
