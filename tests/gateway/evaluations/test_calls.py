""""""

from __future__ import annotations

import asyncio
from typing import cast

import grpc

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.embedding import SMALL_BATCH
from dramaturg.judge.roles import CRITIC, EMBEDDING
from dramaturg.service.channel import open_channel
from dramaturg.service.threads import TenantTurns
from dramaturg.testing import serve
from gateway.evaluations.calls import ask, embed_by
from gateway.evaluations.scope import EvaluationScope, Timeouts
from gateway.judges.identity import JudgeIdentity
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment
from gateway.settings import JudgeEntry
from tests.support.evaluations import contract


async def test_a_failure_is_noted_with_the_judge_that_it_is_of() -> None:
    channel = cast("grpc.aio.Channel", None)
    judge = Judge(
        CRITIC,
        "strict",
        "nowhere:1",
        default=True,
        channel=channel,
        turns=TenantTurns(1, 1),
        identity=JudgeIdentity(channel, CRITIC.contract),
        entry=JudgeEntry(role="critic", name="strict", target="nowhere:1"),
    )

    async def never(request: EmbedRequest, *, timeout: float) -> None:
        await asyncio.sleep(timeout + 10)

    scope = EvaluationScope(Timeouts(1, 1, 1))
    assignment = JudgeAssignment(judge, "")
    answered = await ask(assignment, scope, never, EmbedRequest(), EmbedResponse, longest=0.01)
    assert scope.failures == [answered._replace(judge="critic 'strict'")]  # type: ignore[union-attr]
    assert scope.failures[0].reason == verdict_pb2.ABSTAIN_REASON_TIMED_OUT


async def test_only_a_failure_that_is_not_recovered_is_noted() -> None:
    async def embed(request: EmbedRequest) -> EmbedResponse:
        if len(request.texts) > SMALL_BATCH or "never in time" in request.texts:
            await asyncio.Event().wait()
        response = EmbedResponse(model="m")
        for _ in request.texts:
            response.embeddings.add(values=[1.0])
        return response

    texts = ["a text"] * (SMALL_BATCH + 1)
    async with (
        serve(contract("embedding", {"Embed": embed})) as server,
        open_channel(server.target) as channel,
    ):
        judge = Judge(
            EMBEDDING,
            "slow",
            server.target,
            default=True,
            channel=channel,
            turns=TenantTurns(1, 1),
            identity=JudgeIdentity(channel, EMBEDDING.contract),
            entry=JudgeEntry(role="embedding", name="slow", target=server.target),
        )
        assignment, scope = JudgeAssignment(judge, ""), EvaluationScope(Timeouts(0.5, 1, 1))
        found = await embed_by(assignment, scope, texts)
        assert (found.failure, len(found.vectors), scope.failures) == ("", len(texts), [])
        found = await embed_by(assignment, scope, [*texts, "never in time"])
    assert found.failure == "did not answer in time"
    assert [vector is None for vector in found.vectors] == [False] * SMALL_BATCH + [True] * 2
    assert len(scope.failures) == 2
