"""Answers of hostile judges."""

from __future__ import annotations

import math
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_UNSPECIFIED as UNSPECIFIED
from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Provenance, Usage
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.api.generation.v1.authoring_decisions_pb2 import ChooseOptionResponse
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import ReplyResponse
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptResponse
from dramaturg.api.generation.v1.edge_service_pb2 import PredictEdgesResponse
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnResponse
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeResponse
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Ballot, ComparePairResponse, RoleVote
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Role as Reader
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyResponse, Rating
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsResponse
from dramaturg.api.roles.v1.role_service_pb2 import ClusterRolesResponse, GenerateRolesResponse
from dramaturg.judge.protocols import MAX_ANSWER_BYTES
from dramaturg.judge.provenance import MAX_AMOUNT
from dramaturg.judge.roles import (
    AUTHOR,
    CHALLENGE_JUDGE,
    CRITIC,
    EDGES,
    PAIR_JUDGE,
    RATING_JUDGE,
    ROLES_FINDER,
    SYNTHESIZE,
    TEXT_SCORER,
    Role,
)
from dramaturg.service.errors import ServiceError
from gateway.evaluations.failures import of_error, quarantined
from gateway.evaluations.judge_answers import (
    CLAIMED_USAGE,
    CORRECTIONS,
    MAX_RESULT_BYTES,
    MAX_TEXT_CHARACTERS,
    empty_breach,
    limit_answer,
    limit_claims,
    limit_response,
    limit_result,
)

CALL = Usage(prompt_token_count=100, completion_token_count=20, provider_call_count=1, cost_usd=0.01)


def assessed(usage: Usage | None = None, *calls: Usage, **fields: Any) -> Assessment:
    completions = [CompletionReference(usage=call) for call in calls]
    return Assessment(provenance=Provenance(usage=usage, completions=completions), **fields)


def test_an_honest_answer_is_not_changed() -> None:
    total = Usage(prompt_token_count=200, completion_token_count=40, provider_call_count=2, cost_usd=0.02)
    total.unused_completion_count, total.unused_cost_usd = 1, 0.01
    answer = assessed(total, CALL, CALL, verdicts=[Verdict(criterion="a", rationale="x" * 50_000)])
    before = answer.SerializeToString(deterministic=True)
    assert limit_answer(answer, None)
    assert answer.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    "claim",
    [
        Usage(prompt_token_count=10**9),
        Usage(cost_usd=-5.0),
        Usage(cost_usd=math.nan),
        Usage(cost_usd=math.inf),
        Usage(prompt_token_count=101, completion_token_count=20, provider_call_count=1, cost_usd=0.01),
        Usage(prompt_token_count=100, completion_token_count=20, provider_call_count=7, cost_usd=0.01),
        Usage(
            prompt_token_count=100,
            completion_token_count=20,
            provider_call_count=1,
            cost_usd=0.01,
            unused_cost_usd=-1.0,
        ),
    ],
    ids=str,
)
def test_usage_counts_as_far_as_model_calls_account_for_it(claim: Usage) -> None:
    answer = assessed(claim, CALL)
    assert limit_answer(answer, None)
    assert answer.provenance.usage == CALL
    assert "usage" in answer.provenance.parameters[CORRECTIONS]
    assert answer.provenance.parameters[CLAIMED_USAGE]


@pytest.mark.parametrize(
    ("response", "role"),
    [
        (ComparePairResponse(), PAIR_JUDGE),
        (ScoreTextsResponse(), TEXT_SCORER),
        (FindChallengingTurnResponse(), CHALLENGE_JUDGE),
        (SynthesizeResponse(), SYNTHESIZE),
        (GenerateRolesResponse(), ROLES_FINDER),
        (PredictEdgesResponse(), EDGES),
        (ChooseOptionResponse(), AUTHOR),
        (ReplyResponse(), AUTHOR),
        (WriteScriptResponse(), AUTHOR),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
def test_claims_of_every_contract_are_limited(response: Any, role: Role) -> None:
    response.provenance.usage.CopyFrom(Usage(cost_usd=-5.0, prompt_token_count=10**9))
    assert limit_response(response, role, None)
    assert not response.provenance.usage.ListFields()
    assert CLAIMED_USAGE in response.provenance.parameters


def test_ratings_and_assessments_are_limited_within_their_response() -> None:
    rated = RateReplyResponse(rating=Rating(rationale="x" * 10**6))
    rated.rating.provenance.usage.cost_usd = -5.0
    assert limit_response(rated, RATING_JUDGE, None)
    assert len(rated.rating.rationale) == MAX_TEXT_CHARACTERS
    assert not rated.rating.provenance.usage.ListFields()
    judged = JudgeResponse(assessment=assessed(Usage(cost_usd=-5.0)))
    limit_claims(judged)
    assert not judged.assessment.provenance.usage.ListFields()


def test_texts_that_are_evaluated_are_not_cut() -> None:
    reply = ReplyResponse(text="x" * 10**6)
    assert limit_response(reply, AUTHOR, None)
    assert len(reply.text) == 10**6


def test_usage_without_model_calls_is_a_claim() -> None:
    answer = assessed(Usage(completion_token_count=7))
    assert limit_answer(answer, None)
    assert not answer.provenance.usage.ListFields()
    assert answer.provenance.parameters[CLAIMED_USAGE] == "completion_token_count=7"


@pytest.mark.parametrize(
    "call",
    [
        Usage(cost_usd=-5.0),
        Usage(cost_usd=math.nan),
        Usage(cost_usd=1e9),
        Usage(prompt_token_count=10**12),
        Usage(completion_token_count=2**63),
        Usage(cached_prompt_token_count=10**8),
    ],
    ids=str,
)
def test_impossible_amounts_of_a_call_are_dropped(call: Usage) -> None:
    answer = assessed(call, call)
    assert limit_answer(answer, None)
    assert not answer.provenance.usage.ListFields()
    assert "dropped the" in answer.provenance.parameters[CORRECTIONS]


def test_the_counts_of_one_call_are_at_most_those_that_are_summed() -> None:
    call = Usage(provider_call_count=10**15)
    answer = assessed(call, call)
    assert limit_answer(answer, None)
    assert answer.provenance.usage.provider_call_count == MAX_AMOUNT


def test_the_text_of_a_prompt_is_not_taken_from_an_answer() -> None:
    answer = assessed()
    answer.provenance.prompts.add(name="critique", sha256="ab", text="Another text.")
    assert limit_answer(answer, None)
    assert [prompt.text for prompt in answer.provenance.prompts] == [""]


def test_a_latency_above_a_day_is_dropped() -> None:
    for seconds, kept in ((86_400, True), (86_401, False), (-1, False)):
        answer = assessed(CALL, CALL)
        for one in (answer.provenance, answer.provenance.completions[0]):
            one.latency.seconds = seconds
        assert limit_answer(answer, None)
        assert answer.provenance.HasField("latency") == kept
        assert answer.provenance.completions[0].HasField("latency") == kept


def test_large_texts_are_cut() -> None:
    answer = assessed(verdicts=[Verdict(criterion="a", rationale="x" * 10_000_000)])
    assert limit_answer(answer, None)
    assert len(answer.verdicts[0].rationale) == MAX_TEXT_CHARACTERS
    assert answer.verdicts[0].rationale.endswith("[cut by the gateway]")
    assert "10000" in answer.provenance.parameters[CORRECTIONS]


def test_many_texts_are_cut_further() -> None:
    verdicts = [Verdict(criterion=str(index), rationale="x" * 100_000) for index in range(100)]
    answer = assessed(verdicts=verdicts)
    assert limit_answer(answer, None)
    assert answer.ByteSize() <= MAX_ANSWER_BYTES
    assert [verdict.criterion for verdict in answer.verdicts] == [str(index) for index in range(100)]


def test_the_roles_of_votes_stay_whole() -> None:
    """A judge states the roles of the request, in their order."""
    roles = [Reader(type=str(index), description="d" * 2_000) for index in range(50)]
    ballots = [Ballot(rationale="r" * 2_000)] * 2
    answer = ComparePairResponse(votes=[RoleVote(role=role, ballots=ballots) for role in roles])
    assert limit_answer(answer, None)
    assert [vote.role for vote in answer.votes] == roles
    assert len(answer.votes[0].ballots[0].rationale) < 2_000


def test_an_answer_of_many_elements_is_not_used() -> None:
    verdict = Verdict(criterion="a")
    # What is left of each list and text is more than fits.
    for _ in range(4):
        verdict.findings.add(description="x" * 5_000, step_indices=range(300))
    answer = assessed(verdicts=[verdict] * 300)
    assert not limit_answer(answer, None)


def test_name_and_version_are_those_of_the_identity() -> None:
    answer = Assessment(provenance=Provenance(name="llm-critic", version="9.9.9"))
    assert limit_answer(answer, Identity(name="other", version="1.0.0"))
    assert (answer.provenance.name, answer.provenance.version) == ("other", "1.0.0")
    assert "'llm-critic' '9.9.9'" in answer.provenance.parameters[CORRECTIONS]


def test_an_answer_without_provenance_has_that_of_the_identity() -> None:
    answer = Assessment(verdicts=[Verdict(criterion="executable")])
    assert limit_answer(answer, Identity(name="honest", version="2.0.0"))
    assert (answer.provenance.name, answer.provenance.version) == ("honest", "2.0.0")


@pytest.mark.parametrize(
    "message",
    [
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.1.2.3:50051: connection refused",
        "ipv6:[fd00::7]:50051: Socket closed",
        "DNS resolution failed for critic.team-a.svc.cluster.local:50051: not found",
        "unix:/run/judges/critic.sock: no such file",
    ],
)
def test_addresses_are_not_disclosed(message: str) -> None:
    error = ServiceError(grpc.StatusCode.UNAVAILABLE, UNSPECIFIED, message)
    said = of_error(error, CRITIC).explanation
    for secret in ("10.1.2.3", "50051", "fd00", "cluster.local", "/run"):
        assert secret not in said
    assert "UNAVAILABLE" in said


def test_other_words_of_an_error_are_kept() -> None:
    error = ServiceError(
        grpc.StatusCode.UNAVAILABLE, UNSPECIFIED, "the model answered at 12:30: try 3 of 4, code 500"
    )
    assert "try 3 of 4, code 500" in of_error(error, CRITIC).explanation


def test_the_words_of_an_error_become_a_part_of_a_sentence() -> None:
    error = ServiceError(grpc.StatusCode.INTERNAL, UNSPECIFIED, "The key is not valid.")
    assert of_error(error, CRITIC).explanation.endswith("The key is not valid")
    assert (
        quarantined("it passes what it faults.").explanation == "is in quarantine: it passes what it faults"
    )


def test_the_error_of_a_judge_is_cut() -> None:
    error = ServiceError(grpc.StatusCode.INTERNAL, UNSPECIFIED, "10.1.2.3:50051 " * 200_000)
    said = of_error(error, CRITIC).explanation
    assert len(said) < 1000
    assert "10.1.2.3" not in said


def test_the_words_of_a_judge_that_refuses_the_gateway_are_not_disclosed() -> None:
    error = ServiceError(grpc.StatusCode.UNAUTHENTICATED, UNSPECIFIED, "the token abc has expired")
    said = of_error(error, CRITIC).explanation
    assert said == "refused the identity of the gateway with UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("role", "response", "breach"),
    [
        (AUTHOR, WriteScriptResponse(text="x" * 200_000), ""),
        (AUTHOR, WriteScriptResponse(text="x" * 200_001), "text has 200001 characters"),
        (AUTHOR, ReplyResponse(text="x" * 200_001), "text has 200001 characters"),
        (EDGES, PredictEdgesResponse(dropped=["x"] * 10_001), "dropped has 10001 elements"),
        (SYNTHESIZE, SynthesizeResponse(failure="x" * 20_001), "failure has 20001 characters"),
        (ROLES_FINDER, GenerateRolesResponse(roles=[Reader()] * 1001), "roles has 1001 elements"),
        (ROLES_FINDER, GenerateRolesResponse(roles=[Reader(type="x" * 10_000)]), ""),
        (CRITIC, JudgeResponse(candidate_id="x" * 10**6), ""),
    ],
)
def test_an_answer_that_breaks_a_limit_of_its_contract_is_dropped_and_its_usage_counts(
    role: Role, response: Any, breach: str
) -> None:
    before = type(response).FromString(response.SerializeToString())
    if breach:
        response.provenance.usage.CopyFrom(CALL)
    assert empty_breach(response, role) == ""
    if not breach:
        assert response == before
        return
    assert breach in response.provenance.parameters[CORRECTIONS]
    assert response.provenance.usage == CALL
    assert response.ByteSize() < 500
    assert getattr(response, "abstain_reason", 0) or breach in response.failure


def test_an_answer_that_breaks_a_limit_and_cannot_say_so_is_a_failure() -> None:
    response = ClusterRolesResponse(roles=[Reader()] * 10_001)
    assert "roles has 10001 elements" in empty_breach(response, ROLES_FINDER)


def test_a_result_that_is_too_large_keeps_verdicts_usage_and_what_was_judged() -> None:
    def result() -> ScriptsResult:
        made = ScriptsResult(task=Task(goal="g" * 30_000))
        for number in range(100):
            candidate = made.candidates.add(candidate_id=str(number))
            assessment = candidate.assessments.add().assessment
            assessment.verdicts.add(criterion="c", rationale="r" * 1000)
            calls = assessment.provenance.completions
            calls.extend(CompletionReference(raw_text="x" * 900, fingerprint=str(one)) for one in range(220))
        return made

    large, small = result(), result()
    assert large.ByteSize() > MAX_RESULT_BYTES
    limit_result(large)
    assert large.ByteSize() <= MAX_RESULT_BYTES
    provenance = large.candidates[0].assessments[0].assessment.provenance
    assert len(provenance.completions) == 220, "no call is left out"
    assert "cut the texts of a result of" in provenance.parameters[CORRECTIONS]
    for made in (large, small):
        for candidate in made.candidates:
            candidate.assessments[0].assessment.ClearField("provenance")
    assert large == small
    untouched = ScriptsResult.FromString(small.SerializeToString())
    limit_result(untouched)
    assert untouched == small
