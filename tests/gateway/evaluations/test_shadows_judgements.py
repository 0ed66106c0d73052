"""Shadows of judges of pairs, ratings and challenging turns, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    ModelPair,
    SimulateDialogueRequest,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import SHADOW_MISS_LATE, SHADOW_MISS_QUEUE_FULL
from dramaturg.api.evaluation.v1.summary_pb2 import JudgeComparison
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import ReplyResponse
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnResponse
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyResponse, Rating
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve, serve_gateway
from gateway.settings import GatewaySettings
from services.alignment.app import App as AlignmentApp
from tests.gateway.evaluations import test_dialogues as dialogues
from tests.gateway.evaluations import test_simulations as simulations
from tests.support.evaluations import CALL, contract
from tests.support.pairs import request as pair_request

WAIT = Duration(seconds=20)
PAIR = [ModelPair(first_model="a", second_model="bb")]


async def hang(request: Any) -> Any:
    await asyncio.Event().wait()


async def prefer_second(request: pairs_pb.ComparePairRequest) -> pairs_pb.ComparePairResponse:
    return _preferred(request, pairs_pb.PREFERENCE_SECOND)


async def prefer_first(request: pairs_pb.ComparePairRequest) -> pairs_pb.ComparePairResponse:
    return _preferred(request, pairs_pb.PREFERENCE_FIRST)


def _preferred(
    request: pairs_pb.ComparePairRequest, preference: pairs_pb.Preference.ValueType
) -> pairs_pb.ComparePairResponse:
    votes = [pairs_pb.RoleVote(role=role, preference=preference) for role in request.roles]
    return pairs_pb.ComparePairResponse(
        preference=preference, votes=votes or [pairs_pb.RoleVote(preference=preference)], provenance=CALL
    )


async def rate_five(request: Any) -> RateReplyResponse:
    return RateReplyResponse(rating=Rating(value=5, provenance=CALL))


async def reply_by_name(request: Any) -> Any:
    return ReplyResponse(text=request.options.model, provenance=CALL)


async def rate_by_length(request: Any) -> RateReplyResponse:
    return RateReplyResponse(rating=Rating(value=4 + len(request.response), provenance=CALL))


@asynccontextmanager
async def shadowed(
    judges: Mapping[str, Any], shadows: Mapping[str, Any], **table: Any
) -> AsyncIterator[DramaturgClient]:
    """A gateway whose judges are named "fake" and have shadows of the name "shadow", by role."""
    async with AsyncExitStack() as stack:
        entries: list[dict[str, Any]] = []
        for name, some in (("fake", judges), ("shadow", shadows)):
            for role, methods in some.items():
                made = serve(contract(role, methods), drain_grace_seconds=0.2)
                target = (await stack.enter_async_context(made)).target
                entries.append({"role": role, "name": name, "target": target})
                if name == "shadow":
                    entries[-1]["shadow"] = {"of": "fake", **table}
        served = serve(*await stack.enter_async_context(AlignmentApp().open()))
        alignment = (await stack.enter_async_context(served)).target
        entries.append({"role": "alignment", "name": "built-in", "target": alignment})
        gateway = await stack.enter_async_context(serve_gateway(judges=entries))
        yield await stack.enter_async_context(DramaturgClient(gateway.target))


def replies() -> Mapping[str, Any]:
    return {
        "author": {"Reply": reply_by_name},
        "rating-judge": {"RateReply": rate_by_length},
        "pair-judge": {"ComparePair": prefer_first},
    }


async def evaluate(client: DramaturgClient, **fields: Any) -> DialogueResult:
    request = dialogues.asked(**{"models": ["a", "bb"], "pairs": PAIR, **fields})
    return [event async for event in client.evaluate_dialogues(request, timeout=20)][-1].result


async def compared(client: DramaturgClient, **result: Any) -> dict[str, JudgeComparison]:
    """The comparisons of judges in the summary of one sample, by role."""
    sample = RunSample(index=0, line=1, state=SAMPLE_STATE_SUCCEEDED, **result)
    summary = await client.summarize([sample])
    assert not summary.problems
    return {one.role: one for one in summary.judge_comparisons}


async def test_shadows_judge_the_same_replies_and_change_nothing() -> None:
    seen: dict[str, list[Any]] = {"judge": [], "shadow": []}

    async def rate(request: Any) -> RateReplyResponse:
        seen["judge"].append(request)
        return await rate_by_length(request)

    async def rate_as_shadow(request: Any) -> RateReplyResponse:
        seen["shadow"].append(request)
        return await rate_five(request)

    judges = {**replies(), "rating-judge": {"RateReply": rate}}
    shadows = {"rating-judge": {"RateReply": rate_as_shadow}, "pair-judge": {"ComparePair": prefer_second}}
    async with shadowed(judges, shadows) as client:
        result = await evaluate(client, shadow_wait=WAIT)
        comparisons = await compared(client, dialogue=result)
    async with shadowed(replies(), {}) as client:
        alone = await evaluate(client)
    by_item = {(one.role, one.model, one.second_model): one for one in result.shadows}
    assert [*by_item] == [
        ("rating-judge", "a", ""),
        ("rating-judge", "bb", ""),
        ("pair-judge", "a", "bb"),
    ]
    assert {(one.judge, one.shadow_of, one.miss) for one in result.shadows} == {("shadow", "fake", 0)}
    assert all(one.latency.ToNanoseconds() > 0 for one in result.shadows)
    assert all(one.judge_latency.ToNanoseconds() > 0 for one in result.shadows)
    assert by_item["rating-judge", "a", ""].rating.provenance.registered_name == "shadow"
    del result.shadows[:]
    assert result == alone
    sent = [sorted(one.SerializeToString(deterministic=True) for one in some) for some in seen.values()]
    assert sent[0] == sent[1]

    rated = comparisons["rating-judge"]
    assert (rated.first_judge, rated.second_judge, rated.item_count) == ("fake", "shadow", 2)
    (figures, everything) = rated.figures
    assert (figures.criterion, everything.criterion) == ("rating", "")
    assert figures.agreement.value == 0.5  # 5 and 6 against 5 and 5
    assert not figures.HasField("cohen_kappa")
    assert [(one.model, one.first, one.second) for one in rated.flips] == [("bb", "6", "5")]
    assert rated.second.usage.provider_call_count == 2 * CALL.usage.provider_call_count
    assert rated.first.mean_latency_seconds > 0
    preferred = comparisons["pair-judge"]
    assert [(one.model, one.criterion, one.first, one.second) for one in preferred.flips] == [
        ("a / bb", "preference", "FIRST", "SECOND")
    ]


async def test_judgements_of_shadows_stand_in_the_order_of_the_request() -> None:
    rated = asyncio.Event()

    async def reply_after_the_second_is_rated(request: Any) -> Any:
        if request.options.model == "a":
            await rated.wait()
        return await reply_by_name(request)

    async def rate(request: Any) -> RateReplyResponse:
        rated.set()
        return await rate_five(request)

    judges = {**replies(), "author": {"Reply": reply_after_the_second_is_rated}}
    shadows = {"rating-judge": {"RateReply": rate}, "pair-judge": {"ComparePair": prefer_second}}
    async with shadowed(judges, shadows) as client:
        result = await evaluate(client, shadow_wait=WAIT)
    assert [(one.role, one.model) for one in result.shadows] == [
        ("rating-judge", "a"),
        ("rating-judge", "bb"),
        ("pair-judge", "a"),
    ]


async def test_a_shadow_that_hangs_delays_no_result_and_is_cancelled() -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def hang_until_cancelled(request: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async def rate_after_shadow(request: Any) -> RateReplyResponse:
        await begun.wait()
        return await rate_five(request)

    judges = {**replies(), "rating-judge": {"RateReply": rate_after_shadow}}
    async with shadowed(judges, {"rating-judge": {"RateReply": hang_until_cancelled}}) as client:
        result = await evaluate(client)
        await asyncio.wait_for(gone.wait(), 10)
        comparison = (await compared(client, dialogue=result))["rating-judge"]
    assert [one.rating.value for one in result.ratings] == [5, 5]
    assert {one.miss for one in result.shadows} == {SHADOW_MISS_LATE}
    assert dict(comparison.unseen_by_reason) == {"LATE": 2}


async def test_a_full_queue_and_a_failing_shadow_are_stated() -> None:
    async def fail(request: Any) -> Any:
        raise RuntimeError("no luck today")

    async with shadowed(replies(), {"rating-judge": {"RateReply": hang}}, queue_size=1) as client:
        full = await evaluate(client)
    async with shadowed(replies(), {"rating-judge": {"RateReply": fail}}) as client:
        failed = await evaluate(client, shadow_wait=WAIT)
        comparison = (await compared(client, dialogue=failed))["rating-judge"]
    assert sorted(one.miss for one in full.shadows) == sorted([SHADOW_MISS_QUEUE_FULL, SHADOW_MISS_LATE])
    assert [one.rating.value for one in failed.ratings] == [5, 6]
    assert {one.rating.abstain_reason for one in failed.shadows} == {
        verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
    }
    assert dict(comparison.second.abstentions_by_reason) == {"JUDGE_UNAVAILABLE": 2}
    assert not comparison.figures


async def test_a_shadow_compares_pairs_by_every_method() -> None:
    judges = {"pair-judge": {"ComparePair": prefer_first}}
    request = pair_request(baselines=["llm"], shadow_wait=WAIT)
    request.roles.coarse_count, request.roles.fine_count = 0, 0
    async with shadowed(judges, {"pair-judge": {"ComparePair": prefer_second}}) as client:
        result = [event async for event in client.evaluate_pairs(request, timeout=20)][-1].result
        comparison = (await compared(client, pair=result))["pair-judge"]
    assert {one.comparison.preference for one in result.comparisons} == {pairs_pb.PREFERENCE_FIRST}
    assert {one.method: one.comparison.preference for one in result.shadows} == {
        "roles": pairs_pb.PREFERENCE_SECOND,
        "llm": pairs_pb.PREFERENCE_SECOND,
    }
    assert result.usage.provider_call_count == 2 * CALL.usage.provider_call_count
    assert [one.criterion for one in comparison.figures] == ["llm", "roles", ""]
    assert {one.agreement.value for one in comparison.figures} == {0}
    assert [(one.candidate_id, one.first, one.second) for one in comparison.flips] == [
        ("bridge", "FIRST", "SECOND")
    ] * 2


async def test_a_shadow_finds_challenging_turns() -> None:
    async def third(request: Any) -> FindChallengingTurnResponse:
        return FindChallengingTurnResponse(turn=3, provenance=CALL)

    async def fifth(request: Any) -> FindChallengingTurnResponse:
        return FindChallengingTurnResponse(turn=5, provenance=CALL)

    cast = simulations.Cast(challenging_turn=2)
    for answer, expected in ((third, 3), (fifth, None)):
        shadows = {"challenge-judge": {"FindChallengingTurn": answer}}
        async with shadowed(cast.roles(), shadows) as client:
            request = SimulateDialogueRequest(task=simulations.TASK, shadow_wait=WAIT)
            result = [event async for event in client.simulate_dialogue(request, timeout=20)][-1].result
            comparison = (await compared(client, simulation=result))["challenge-judge"]
        assert result.challenging_turn == 2
        assert len(result.provenances) == 8  # seven utterances and the challenging turn
        (shadow,) = result.shadows
        assert (shadow.challenge.turn if shadow.challenge.HasField("turn") else None) == expected
        if expected is None:  # the dialogue has four turns
            assert dict(comparison.second.abstentions_by_reason) == {"UNPARSABLE": 1}
            assert not comparison.flips
        else:
            assert [(one.criterion, one.first, one.second) for one in comparison.flips] == [
                ("challenging-turn", "2", "3")
            ]


async def test_a_request_names_a_shadow_whose_usage_counts() -> None:
    judges = {**replies(), "rating-judge": {"RateReply": rate_five}}
    named = JudgeSelection(role="rating-judge", judge="shadow", model="small")
    async with shadowed(judges, {"rating-judge": {"RateReply": rate_five}}) as client:
        result = await evaluate(client, shadows=[named], shadow_wait=WAIT)
        alone = await evaluate(client)
        with pytest.raises(ServiceError, match=r"shadows\[0\]\.role is 'author'"):
            await evaluate(client, shadows=[JudgeSelection(role="author", judge="fake")])
    counted = result.usage.provider_call_count - alone.usage.provider_call_count
    assert counted == len(result.shadows) * CALL.usage.provider_call_count


@pytest.mark.parametrize("role", ["author", "text-scorer", "synthesize"])
def test_judges_of_other_roles_have_no_shadows(role: str) -> None:
    entries: Any = [
        {"role": role, "name": "a", "target": "localhost:1"},
        {"role": role, "name": "b", "target": "localhost:1", "shadow": {"of": "a"}},
    ]
    with pytest.raises(ValueError, match=f"has a shadow of '{role}', a role without shadows: b"):
        GatewaySettings(judges=entries)
