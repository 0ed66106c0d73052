"""Calls at their limits: the event loop is held, and memory is taken, in proportion to the call at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, RolePlan
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PREPARING, RUN_STATE_RUNNING
from dramaturg.api.evaluation.v1.run_service_pb2 import CompareRunsRequest
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityResponse, Identity
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.judge.roles import CRITIC
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings
from gateway.runs.store import open_store
from tests.hostile.judges import CONTRACT, hostile_judge
from tests.hostile.test_requests import resident_mb
from tests.support.fleet import report
from tests.support.gateway import Fake, agents, gateway_client
from tests.support.growth import GROWTH, NOISE_SECONDS
from tests.support.pairs import events, request, serve_fakes
from tests.support.runs import create, judged, rows, sample_rows
from tests.support.stored_runs import address_of, gateway_address

Call = Callable[[float], Awaitable[object]]
"""Makes a call with a share of what its limits allow."""

ROUNDS = 12
KEPT_MB = 8
"""The most memory that a round may add."""
CRITERIA, DESCRIPTION, TEXT = 50, 1_900, 200_000
SAMPLES, VERDICTS = 2_000, 7
CRITERION_NAMES = 30_000
"""Of an identity of 3 MB. A gateway receives 4 MB at most."""


@asynccontextmanager
async def pairs_with_criteria() -> AsyncIterator[Call]:
    """``EvaluatePairs`` with criteria, whose judge gives reasons of the length of the criteria."""

    async def compare(asked: pairs_pb.ComparePairRequest, context: Any) -> pairs_pb.ComparePairResponse:
        del context
        orders = (pairs_pb.PRESENTATION_ORDER_AS_GIVEN, pairs_pb.PRESENTATION_ORDER_SWAPPED)
        ballots = [
            pairs_pb.Ballot(order=order, preference=pairs_pb.PREFERENCE_FIRST, rationale="r" * DESCRIPTION)
            for order in orders
        ]
        votes = [
            pairs_pb.RoleVote(role=role, preference=pairs_pb.PREFERENCE_FIRST, ballots=ballots)
            for role in asked.roles
        ]
        return pairs_pb.ComparePairResponse(
            votes=votes, preference=pairs_pb.PREFERENCE_FIRST, first_vote_share=1.0
        )

    async def call(share: float) -> None:
        criteria = [
            RubricCriterion(id=f"c{number}", passes="p" * DESCRIPTION)
            for number in range(int(CRITERIA * share))
        ]
        text = "text " * int(TEXT * share / 5)
        asked = request(
            source=text,
            first=ComparedText(text=text),
            second=ComparedText(text=text[1:]),
            roles=RolePlan(criteria=criteria),
            order=pairs_pb.PRESENTATION_ORDER_BOTH,
        )
        found = await events(target, asked)
        (comparison,) = found[-1].result.comparisons
        votes = comparison.comparison.votes
        assert [vote.preference for vote in votes] == [pairs_pb.PREFERENCE_FIRST] * len(criteria)

    async with serve_fakes(compare) as target:
        yield call


def store_runs(folder: Path, run_ids: Sequence[str], count: int) -> None:
    """Stores finished runs, of which the first two agree on no verdict."""
    store = open_store(address_of(folder))
    for number, run_id in enumerate(run_ids):
        create(store, run_id)
        store.samples.add(run_id, sample_rows(rows(range(count))))
        store.runs.change_state(run_id, RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
        store.samples.take(run_id, range(count), "here")
        run = store.runs.get(run_id)
        assert run is not None
        outcomes = [judged(index, {"a": [index % 2 == number] * VERDICTS}) for index in range(count)]
        for outcome in outcomes:
            outcome.sample.scripts.task.id = outcome.sample.sample_id
        store.attempts.finish(run_id, run.attempt, outcomes)
    store.close()


@asynccontextmanager
async def compared_runs(folder: Path) -> AsyncIterator[Call]:
    """``CompareRuns`` with as many permutations and resamples as it allows."""
    shares = {0.5: ("small-1", "small-2"), 1.0: ("large-1", "large-2")}

    async def call(share: float) -> None:
        asked = CompareRunsRequest(run_ids=shares[share], permutation_count=100_000, resample_count=20_000)
        answer = await RunServiceStub(channel).CompareRuns(asked, timeout=120)
        assert answer.flip_count == SAMPLES * share * VERDICTS

    for share, run_ids in shares.items():
        await asyncio.to_thread(store_runs, folder, run_ids, int(SAMPLES * share))
    async with (
        gateway_address(folder, "alignment") as target,
        open_channel(target, ChannelSettings()) as channel,
    ):
        yield call


@asynccontextmanager
async def checked_judge() -> AsyncIterator[Call]:
    """``CheckJudge`` of a judge with a large identity."""
    names = {
        share: [f"n{number:090}" for number in range(int(CRITERION_NAMES * share))] for share in (0.5, 1.0)
    }
    size = 1.0

    async def introduce(asked: Any, context: Any) -> GetIdentityResponse:
        del asked, context
        identity = Identity(
            name="hostile", version="1", contract=CONTRACT, criteria=CRITIC.criteria, capabilities=names[size]
        )
        return GetIdentityResponse(identity=identity)

    async def call(share: float) -> None:
        nonlocal size
        size = share
        judge = await client.check_judge("critic", "hostile")
        assert judge.identity.name == "hostile"
        assert len(judge.identity.capabilities) < 100

    async with (
        hostile_judge(introduce) as target,
        gateway_client(*agents(), Fake("critic", name="hostile", target=target)) as client,
    ):
        yield call


async def held_seconds(call: Callable[[], Awaitable[object]]) -> float:
    """The longest processor time for which the event loop turned to no other call."""
    longest, has_ended = 0.0, False

    async def tick() -> None:
        nonlocal longest
        before = time.thread_time()
        while not has_ended:
            await asyncio.sleep(0)
            longest, before = max(longest, (now := time.thread_time()) - before), now

    ticking = asyncio.create_task(tick())
    try:
        await call()
    finally:
        has_ended = True
        await ticking
    return longest


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", ["EvaluatePairs", pytest.param("CompareRuns", marks=pytest.mark.slow), "CheckJudge"]
)
async def test_a_call_at_its_limits_holds_the_loop_and_memory_in_proportion(
    name: str, tmp_path: Path
) -> None:
    entries: dict[str, Callable[[], AbstractAsyncContextManager[Call]]] = {
        "EvaluatePairs": pairs_with_criteria,
        "CompareRuns": partial(compared_runs, tmp_path),
        "CheckJudge": checked_judge,
    }
    async with entries[name]() as call:
        await call(1.0)
        half, whole, kept = float("inf"), float("inf"), float("inf")
        for _ in range(ROUNDS):
            before = resident_mb()
            # Other processes slow a measurement down; none speeds it up.
            half = min(half, await held_seconds(partial(call, 0.5)))
            whole = min(whole, await held_seconds(partial(call, 1.0)))
            kept = min(kept, resident_mb() - before)
            is_bounded = whole < max(GROWTH * half, NOISE_SECONDS) and kept < KEPT_MB
            if is_bounded:
                break
        report(method=name, held_ms=[round(1000 * one, 1) for one in (half, whole)], kept_mb=round(kept))
    assert is_bounded
