"""EvaluatePairs over real gRPC: with the real services and a model's server, and with judges that fail."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.pairs_pb2 import (
    EvaluatePairsResponse,
    PairResult,
    RolePlan,
)
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.roles.v1.role_service_pb2 import (
    ClusterRolesResponse,
    GenerateRolesResponse,
    RoleMap,
    RolePoint,
)
from dramaturg.client import DramaturgClient
from dramaturg.judge.role_sets import role_set, tally
from dramaturg.kinds.pairs import comparisons
from dramaturg.service.errors import ServiceError
from dramaturg.testing import until
from tests.support.pairs import (
    BAD,
    GOOD,
    FakeFinder,
    events,
    everyone,
    model,
    request,
    serve_fakes,
    serve_platform,
)
from tests.support.readers import prefer_text, prompt_of, votes, with_tokens
from tests.support.texts import CLEAR, POLITE

FIRST, SECOND, TIE, ABSTAIN = (
    pb.PREFERENCE_FIRST,
    pb.PREFERENCE_SECOND,
    pb.PREFERENCE_TIE,
    pb.PREFERENCE_ABSTAIN,
)
ONE_ORDER = pb.PRESENTATION_ORDER_AS_GIVEN
NO_SUBJECTIVE = RolePlan(coarse_count=0, fine_count=0)
READER = pb.Role(type="Driver", description="Crosses the bridge.", origin=pb.ROLE_ORIGIN_SUBJECTIVE_COARSE)


def result(found: list[EvaluatePairsResponse]) -> PairResult:
    assert found[-1].WhichOneof("event") == "result"
    return found[-1].result


def types(found: PairResult) -> list[str]:
    return [role.type for role in found.roles.roles]


def kinds(found: list[EvaluatePairsResponse]) -> list[str]:
    return [str(event.WhichOneof("event")) for event in found]


def good_model() -> Any:
    vote = votes(prefer_text([GOOD, BAD]))
    return model(lambda body: with_tokens(vote(body), lambda _: -0.1))


async def test_two_model_calls_in_one_order() -> None:
    async with serve_platform(good_model()) as (target, server):
        found = await events(target, request(order=ONE_ORDER, tags={"topic": "bridges"}))
    assert kinds(found) == ["accepted", "roles", "comparison", "result"]
    assert [selection.role for selection in found[0].accepted.judges] == ["roles", "pair-judge"]
    assert found[0].accepted.assessment_count == 1
    assert len(server.requests) == 2
    whole = result(found)
    assert whole.usage.provider_call_count == 2
    # Both drivers are the same reader; objective roles stay whatever they are like.
    assert types(whole)[:3] == [role.type for role in role_set("summarisation")]
    assert len(whole.roles.roles) == 3 + 4
    assert not whole.roles.failure
    assert len(whole.roles.generation.roles) == 5
    assert [list(one.member_indices) for one in whole.roles.clustering.clusters] == [[3, 4]]
    assert [role.type for role in whole.roles.clustered_roles][3:5] == ["Driver", "Motorist"]
    assert len(whole.roles.clustering.map.points) == len(whole.roles.clustered_roles) == 8
    assert whole.roles.generation.provenance.registered_name == "llm"
    (comparison,) = whole.comparisons
    assert (comparison.method, comparison.judge) == ("roles", "llm")
    assert comparison.comparison.preference == FIRST
    assert [vote.role for vote in comparison.comparison.votes] == list(whole.roles.roles)
    assert comparison.comparison.provenance.registered_name == "llm"
    assert comparison.comparison.first_drpe_score == pytest.approx(7 * 2.718281828**-0.1, rel=1e-4)
    assert (whole.id, whole.first_model, whole.second_model) == ("bridge", "model-a", "model-b")
    assert (whole.first_text, whole.second_text) == (GOOD, BAD)
    assert dict(whole.tags) == {"topic": "bridges"}
    assert whole.longer == FIRST


async def test_three_model_calls_in_both_orders_and_one_fewer_with_given_roles() -> None:
    async with serve_platform(good_model()) as (target, server):
        assert result(await events(target, request())).usage.provider_call_count == 3
        assert len(server.requests) == 3
        given = request(roles=RolePlan(subjective_roles=[READER]), order=ONE_ORDER)
        whole = result(await events(target, given))
        assert whole.usage.provider_call_count == 1
        assert len(server.requests) == 4
    assert types(whole) == [*(role.type for role in role_set("summarisation")), "Driver"]
    assert not whole.roles.HasField("generation")


async def test_baselines_cost_calls_of_their_own_and_need_no_roles() -> None:
    asked = request(order=ONE_ORDER, baselines=["llm", "fixed-roles"], roles=NO_SUBJECTIVE)
    async with serve_platform(good_model()) as (target, server):
        whole = result(await events(target, asked))
        assert len(server.requests) == 3
    assert [one.method for one in whole.comparisons] == ["roles", "llm", "fixed-roles"]
    assert [len(one.comparison.votes) for one in whole.comparisons] == [3, 1, 6]
    assert whole.usage.provider_call_count == 3


async def test_judges_see_neither_who_wrote_nor_what_people_prefer() -> None:
    async with serve_platform(good_model()) as (target, server):
        whole = result(await events(target, request(human_preference=SECOND, tags={"secret": "sesame"})))
        sent = "".join(str(body) for body in server.bodies)
    assert whole.human_preference == SECOND
    assert not any(word in sent for word in ("model-a", "model-b", "sesame"))


async def test_the_rules_of_the_votes_reach_the_judge() -> None:
    rules = pb.ComparisonRules(forced_choice=True, bias_caution_omitted=True)
    async with serve_platform(model(votes(prefer_text([GOOD, BAD])))) as (target, server):
        await events(target, request(order=ONE_ORDER, roles=NO_SUBJECTIVE, rules=rules))
    prompt = prompt_of(server.bodies[-1])
    assert "There is no tie" in prompt
    assert "nor their length" not in prompt


async def test_own_objective_roles_take_the_place_of_a_set() -> None:
    own = pb.Role(type="Mayor", description="Wants no trouble.", origin=pb.ROLE_ORIGIN_SUBJECTIVE_FINE)
    asked = request(roles=RolePlan(objective_roles=[own], coarse_count=0, fine_count=0))
    async with serve_fakes(everyone(FIRST)) as target:
        whole = result(await events(target, asked))
    assert types(whole) == ["Mayor"]
    assert whole.roles.roles[0].origin == pb.ROLE_ORIGIN_OBJECTIVE


async def test_a_rubric_takes_the_place_of_all_roles() -> None:
    asked = request(roles=RolePlan(criteria=[POLITE, CLEAR]))
    async with serve_fakes(everyone(FIRST)) as target:  # without a role service
        whole = result(await events(target, asked))
    assert types(whole) == ["polite", "clear"]
    assert {role.origin for role in whole.roles.roles} == {pb.ROLE_ORIGIN_CRITERION}
    assert POLITE.passes in whole.roles.roles[0].description
    assert [one.method for one in comparisons(whole)] == ["roles", "criterion polite", "criterion clear"]


@pytest.mark.parametrize(
    ("generated", "explanation"),
    [
        (RuntimeError("broken"), "failed with INTERNAL"),
        (GenerateRolesResponse(failure="The model refused."), "The model refused."),
        (GenerateRolesResponse(roles=[pb.Role(type="  "), pb.Role(type="x" * 201)]), "no usable role"),
    ],
)
async def test_without_generated_roles_the_objective_ones_judge(
    generated: GenerateRolesResponse | Exception, explanation: str
) -> None:
    async with serve_fakes(everyone(SECOND), FakeFinder(generated)) as target:
        whole = result(await events(target, request()))
    assert types(whole) == [role.type for role in role_set("summarisation")]
    assert explanation in whole.roles.failure
    assert whole.comparisons[0].comparison.preference == SECOND


async def test_roles_of_a_topic_are_asked_for_the_topic() -> None:
    finder = FakeFinder(GenerateRolesResponse(roles=[READER]))
    async with serve_fakes(everyone(FIRST), finder) as target:
        for source in ("One.", "Another."):
            asked = request(source=source, roles=RolePlan(topic="cooking"))
            assert types(result(await events(target, asked)))[3:] == ["Driver"]
    # Equal requests are one call, by the ledger.
    first, second = finder.requests
    assert first == second
    assert first.source == "cooking"


async def test_without_clustering_all_roles_judge() -> None:
    finder = FakeFinder(GenerateRolesResponse(roles=[READER, READER]), RuntimeError("no vectors"))
    async with serve_fakes(everyone(FIRST), finder) as target:
        whole = result(await events(target, request()))
    assert types(whole)[3:] == ["Driver", "Driver"]
    assert "not clustered" in whole.roles.failure


async def test_a_clustering_that_drops_an_objective_role_does_not() -> None:
    finder = FakeFinder(GenerateRolesResponse(roles=[READER]), ClusterRolesResponse(roles=[]))
    async with serve_fakes(everyone(FIRST), finder) as target:
        whole = result(await events(target, request()))
    assert types(whole) == [role.type for role in role_set("summarisation")]


async def test_a_map_without_all_roles_is_left_out() -> None:
    points = [RolePoint(x=0.5)]
    roles = [*role_set("summarisation"), READER]
    clustered = ClusterRolesResponse(roles=roles, map=RoleMap(points=points))
    finder = FakeFinder(GenerateRolesResponse(roles=[READER]), clustered)
    async with serve_fakes(everyone(FIRST), finder) as target:
        whole = result(await events(target, request()))
    assert types(whole)[3:] == ["Driver"]
    assert whole.roles.failure == "1 of 5 roles were generated."
    assert not whole.roles.clustering.HasField("map")


async def failing(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "the judge is gone")
    raise AssertionError


async def short(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
    return pb.ComparePairResponse(votes=[pb.RoleVote(preference=FIRST)], preference=FIRST)


async def shuffled(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
    votes = [pb.RoleVote(role=role, preference=FIRST) for role in reversed(asked.roles)]
    return pb.ComparePairResponse(votes=votes, preference=FIRST)


async def biased(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
    votes = [pb.RoleVote(role=role, preference=FIRST) for role in asked.roles]
    return pb.ComparePairResponse(votes=votes, preference=SECOND)


async def miscounted(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
    votes = [pb.RoleVote(role=role, preference=FIRST) for role in asked.roles]
    return pb.ComparePairResponse(votes=votes, preference=FIRST, first_vote_share=0.25)


async def overconfident(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
    votes = [pb.RoleVote(role=role, preference=FIRST, confidence=math.nan) for role in asked.roles]
    return pb.ComparePairResponse(votes=votes, preference=FIRST)


async def twice(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
    ballots = [pb.Ballot(order=ONE_ORDER, preference=FIRST)] * 2
    votes = [pb.RoleVote(role=role, preference=FIRST, ballots=ballots) for role in asked.roles]
    return pb.ComparePairResponse(votes=votes, preference=FIRST)


async def silent(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
    votes = [pb.RoleVote(role=role, preference=ABSTAIN) for role in asked.roles]
    return pb.ComparePairResponse(votes=votes, preference=ABSTAIN)


@pytest.mark.parametrize(
    ("compare", "reason", "words"),
    [
        (failing, verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE, "the judge is gone"),
        (short, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "1 votes for 3"),
        (shuffled, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "order of the roles"),
        (biased, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "its preference is not that of its votes"),
        (miscounted, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "its first_vote_share is not that of its votes"),
        (overconfident, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "a confidence that is not in (0, 1]"),
        (twice, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "2 ballots for 1 orders"),
        (silent, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "without a reason"),
    ],
)
async def test_a_judge_that_fails_abstains_in_every_role(
    compare: Any, reason: verdict_pb2.AbstainReason.ValueType, words: str
) -> None:
    async with serve_fakes(compare) as target:
        found = await events(target, request(roles=NO_SUBJECTIVE, order=ONE_ORDER))
    (comparison,) = result(found).comparisons
    answer = comparison.comparison
    assert answer.preference == ABSTAIN
    assert [vote.role for vote in answer.votes] == list(role_set("summarisation"))
    assert {vote.abstain_reason for vote in answer.votes} == {reason}
    assert [ballot.order for ballot in answer.votes[0].ballots] == [ONE_ORDER]
    assert words in answer.votes[0].ballots[0].rationale
    assert not answer.HasField("first_vote_share")
    assert answer.provenance.registered_name == "fake"


async def test_a_judge_that_hangs_abstains_in_time_and_the_baseline_stands() -> None:
    async def compare(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
        if asked.roles:
            await asyncio.sleep(60)
        return await everyone(FIRST)(asked, context)

    asked = request(roles=NO_SUBJECTIVE, baselines=["llm"])
    async with serve_fakes(compare) as target:
        whole = result(await events(target, asked, timeout=2))
    by_roles, alone = (one.comparison for one in whole.comparisons)
    assert {vote.abstain_reason for vote in by_roles.votes} == {verdict_pb2.ABSTAIN_REASON_TIMED_OUT}
    assert len(by_roles.votes[0].ballots) == 2
    assert alone.preference == FIRST


async def test_a_caller_that_leaves_ends_the_judging() -> None:
    asked_for, ended = asyncio.Event(), asyncio.Event()

    async def compare(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
        asked_for.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        raise AssertionError

    async with serve_fakes(compare) as target, DramaturgClient(target) as client:
        stream = client.evaluate_pairs(request(roles=NO_SUBJECTIVE))
        while (await anext(stream)).WhichOneof("event") != "roles":
            pass
        await until(asked_for.is_set)
        await stream.aclose()
        await until(ended.is_set)


async def test_a_panel_compares_one_by_one() -> None:
    panel = [JudgeSelection(role="pair-judge", model=name) for name in ("small", "large")]
    models = []

    async def compare(asked: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
        models.append(asked.options.model)
        return await everyone(TIE)(asked, context)

    async with serve_fakes(compare) as target:
        found = await events(target, request(roles=NO_SUBJECTIVE, judges=panel, baselines=["llm"]))
    assert found[0].accepted.assessment_count == 4
    assert [one.method for one in result(found).comparisons] == ["roles", "roles", "llm", "llm"]
    assert sorted(models) == ["large", "large", "small", "small"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"baselines": ["length"]}, "baselines[0]"),
        ({"baselines": ["llm", "llm"]}, "baselines[1]"),
        ({"roles": RolePlan(objective_set="poems")}, "roles.objective_set"),
        ({"roles": RolePlan(objective_set="script", objective_roles=[READER])}, "roles.objective_set"),
        (
            {"roles": RolePlan(subjective_roles=role_set("script"))},
            "roles.subjective_roles[0].origin",
        ),
        ({"roles": RolePlan(coarse_count=50, fine_count=50)}, "roles"),
        ({"roles": RolePlan(criteria=[POLITE, POLITE])}, "roles.criteria[1]"),
        ({"roles": RolePlan(criteria=[POLITE], fine_count=2)}, "roles.fine_count"),
        ({"roles": RolePlan(criteria=[POLITE], objective_roles=[READER])}, "roles.objective_roles"),
        ({"roles": RolePlan(criteria=[RubricCriterion(id="long", passes="x" * 2001)])}, "roles.criteria[0]"),
        ({"judges": [JudgeSelection(role="critic")]}, "judges[0].role"),
        ({"judges": [JudgeSelection(role="roles"), JudgeSelection(role="roles", model="m")]}, "judges[1]"),
    ],
)
async def test_bad_requests_name_the_field(fields: dict[str, Any], fault: str) -> None:
    async with serve_fakes(everyone(FIRST)) as target:
        with pytest.raises(ServiceError) as raised:
            await events(target, request(**fields))
    assert raised.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_FIELD_INVALID
    assert fault in [violation.field for violation in raised.value.violations]


async def test_a_role_that_nobody_plays_refuses_the_request() -> None:
    async with serve_fakes(everyone(FIRST)) as target:
        with pytest.raises(ServiceError) as raised:
            await events(target, request())
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND
    assert raised.value.metadata["role"] == "roles"


@pytest.mark.parametrize(
    ("preferences", "together"),
    [
        ([FIRST, FIRST, SECOND], FIRST),
        ([SECOND, TIE, ABSTAIN], SECOND),
        ([FIRST, SECOND, ABSTAIN], TIE),
        ([ABSTAIN, ABSTAIN], ABSTAIN),
        ([TIE], TIE),
    ],
)
def test_what_votes_say_together(
    preferences: list[pb.Preference.ValueType], together: pb.Preference.ValueType
) -> None:
    assert tally([pb.RoleVote(preference=one) for one in preferences]) == together
