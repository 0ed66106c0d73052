"""The gateway offers every service that it knows at its own address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_USER, SimulationTask, Utterance
from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import FINDING_KIND_REDUNDANT_STEP, OUTCOME_PASS
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from dramaturg.api.judging.v1 import rating_judge_service_pb2
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, RateReplyResponse, Rating
from dramaturg.api.judging.v1.rating_judge_service_pb2_grpc import (
    RatingJudgeServiceServicer,
    RatingJudgeServiceStub,
    add_RatingJudgeServiceServicer_to_server,
)
from dramaturg.judge.streams import MAX_UNREQUESTED
from dramaturg.judge.verdicts import failed, finding, passed
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import FakeJudge, RegisteredJudge, serve, serve_gateway
from gateway.app import App
from gateway.evaluations.judge_answers import CLAIMED_USAGE, CORRECTIONS, UNEXPECTED_VERSION
from gateway.judges.registry import Registry, open_registry
from gateway.proxy import proxy_contracts
from gateway.settings import GatewaySettings, JudgeEntry
from services.graph.app import App as GraphApp
from services.graph.app import GraphSettings
from tests.hostile.judges import ID, hostile_judge
from tests.support.auth import channel_of, holder, token_settings

CHAIN = ScriptGraph(
    events=[Event(id=name, text=name) for name in "abc"],
    edges=[EventEdge(source_id="a", target_id="b"), EventEdge(source_id="b", target_id="c")],
)


@pytest.fixture
async def at_the_gateway() -> AsyncIterator[grpc.aio.Channel]:
    async with (
        GraphApp(settings=GraphSettings(solvers=1)).open() as contracts,
        Server(contracts, ServerSettings.loopback()) as graph,
        App(
            GatewaySettings(judges=(JudgeEntry(role="graph", name="built-in", target=graph.target),))
        ).open() as offered,
        Server(offered, ServerSettings.loopback()) as gateway,
        open_channel(gateway.target) as channel,
    ):
        yield channel


async def test_a_call_is_passed_on_and_answered(at_the_gateway: grpc.aio.Channel) -> None:
    response = await GraphServiceStub(at_the_gateway).CheckGraph(
        pb.CheckGraphRequest(graph=CHAIN), timeout=20
    )
    assert response.report.acyclic
    assert list(response.report.source_ids) == ["a"]


async def test_the_limits_of_the_contract_hold_at_the_gateway(at_the_gateway: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await GraphServiceStub(at_the_gateway).CheckGraph(pb.CheckGraphRequest(), timeout=20)
    assert [violation.field for violation in from_rpc_error(raised.value).violations] == ["graph"]


async def test_the_services_own_errors_come_back_as_they_are(at_the_gateway: grpc.aio.Channel) -> None:
    large = ScriptGraph(events=[Event(id=str(number), text="x") for number in range(41)])
    request = pb.MeasureEditDistanceRequest(first=large, second=large)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await GraphServiceStub(at_the_gateway).MeasureEditDistance(request, timeout=20)
    error = from_rpc_error(raised.value)
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.reason == error_reason_pb2.ERROR_REASON_TOO_LARGE
    assert error.metadata["actual"] == "41"


@pytest.mark.parametrize("known", [True, False])
async def test_the_gateway_calls_for_those_who_may_not_call_the_service_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    caller, service = holder("team-a", "evaluator"), holder("", "service")
    token = tmp_path / "gateway.token"
    token.write_text(service.token if known else "outdated")
    monkeypatch.setenv("DRAMATURG_CHANNEL_TOKEN_FILE", str(token))
    auth = token_settings(tmp_path, caller, service)
    request = pb.CheckGraphRequest(graph=CHAIN)
    async with (
        GraphApp(settings=GraphSettings(solvers=1)).open() as contracts,
        Server(contracts, ServerSettings.loopback(), auth) as graph,
        App(
            GatewaySettings(judges=(JudgeEntry(role="graph", name="built-in", target=graph.target),))
        ).open() as offered,
        Server(offered, ServerSettings.loopback(), auth) as gateway,
        channel_of(graph.target, tmp_path, caller) as at_the_service,
        channel_of(gateway.target, tmp_path, caller) as at_the_gateway,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await GraphServiceStub(at_the_service).CheckGraph(request, timeout=20)
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
        if known:
            assert (await GraphServiceStub(at_the_gateway).CheckGraph(request, timeout=20)).report.acyclic
            return
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await GraphServiceStub(at_the_gateway).CheckGraph(request, timeout=20)
        error = from_rpc_error(raised.value)
        assert error.code is grpc.StatusCode.INTERNAL, "the caller is told that it is not known"
        assert error.reason == error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED


TASK = SimulationTask(name="Chess", description="Play.")
RATE = RateReplyRequest(task=TASK, utterances=[Utterance(speaker=SPEAKER_USER, text="e4")], response="e5")


class Rater(RatingJudgeServiceServicer):
    async def RateReply(self, request: RateReplyRequest, context: object) -> RateReplyResponse:
        return RateReplyResponse(rating=Rating(value=7, provenance=Provenance(name="rater")))


@asynccontextmanager
async def passed_on(
    registry: list[Registry] | None = None, *, rater: RatingJudgeServiceServicer | None = None, **entry: Any
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a gateway that passes calls on to a judge of version 1.0.0."""
    contract = Contract.make(
        rating_judge_service_pb2.DESCRIPTOR.services_by_name["RatingJudgeService"],
        add_RatingJudgeServiceServicer_to_server,
        rater or Rater(),
        name="rater",
        version="1.0.0",
        description="Rates.",
    )
    async with serve(contract) as judge:
        made = JudgeEntry(role="rating-judge", name="rater", target=judge.target, **entry)
        async with open_registry([made], calls_per_judge=4) as judges:
            if registry is not None:
                registry.append(judges)
            async with (
                Server(proxy_contracts(judges), ServerSettings.loopback()) as gateway,
                open_channel(gateway.target) as channel,
            ):
                yield channel


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"expect_version": ">=2"}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"expect_version": ">=2", "version_policy": "pause"}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"expect_version": ">=2", "version_policy": "warn"}, None),
        ({"expect_version": ">=1,<2"}, None),
    ],
)
async def test_the_version_of_the_judge_is_checked(
    entry: dict[str, Any], code: grpc.StatusCode | None
) -> None:
    async with passed_on(**entry) as channel:
        if code is None:
            found = (await RatingJudgeServiceStub(channel).RateReply(RATE, timeout=20)).rating
            assert found.value == 7
            assert (UNEXPECTED_VERSION in found.provenance.parameters) == (entry["expect_version"] == ">=2")
            return
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await RatingJudgeServiceStub(channel).RateReply(RATE, timeout=20)
    error = from_rpc_error(raised.value)
    assert error.code is code
    assert "the judge 'rater' of the role 'rating-judge'" in error.message
    assert "1.0.0" in error.message


async def test_a_judge_in_quarantine_is_not_called() -> None:
    registry: list[Registry] = []
    async with passed_on(registry) as channel:
        (judge,) = registry[0].all()
        for _ in range(20):
            judge.quarantine.record("it repeats itself", "")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await RatingJudgeServiceStub(channel).RateReply(RATE, timeout=20)
        judge.quarantine.release()
        assert (await RatingJudgeServiceStub(channel).RateReply(RATE, timeout=20)).rating.value == 7
    error = from_rpc_error(raised.value)
    assert (error.code, "is in quarantine" in error.message) == (grpc.StatusCode.UNAVAILABLE, True)


async def test_the_usage_that_a_service_claims_is_limited() -> None:
    class Greedy(RatingJudgeServiceServicer):
        async def RateReply(self, request: RateReplyRequest, context: object) -> RateReplyResponse:
            claimed = Provenance(name="greedy", usage=Usage(prompt_token_count=10**9, cost_usd=-5))
            return RateReplyResponse(rating=Rating(value=7, provenance=claimed))

    contract = Contract.make(
        rating_judge_service_pb2.DESCRIPTOR.services_by_name["RatingJudgeService"],
        add_RatingJudgeServiceServicer_to_server,
        Greedy(),
        name="greedy",
        version="1.0.0",
        description="Claims impossible usage.",
    )
    async with serve(contract) as judge:
        entry = JudgeEntry(role="rating-judge", name="greedy", target=judge.target)
        async with (
            App(GatewaySettings(judges=(entry,))).open() as offered,
            Server(offered, ServerSettings.loopback()) as gateway,
            open_channel(gateway.target) as channel,
        ):
            found = (await RatingJudgeServiceStub(channel).RateReply(RATE, timeout=20)).rating
    assert found.value == 7
    assert not found.provenance.usage.prompt_token_count
    assert not found.provenance.usage.cost_usd
    assert "prompt_token_count=1000000000" in found.provenance.parameters[CLAIMED_USAGE]


async def test_a_stream_of_answers_that_nobody_requested_is_cut() -> None:
    request = JudgeRequest(
        task=Task(id="answers about another without end", goal="Make tea"), candidates=[JudgeCandidate(id=ID)]
    )
    async with hostile_judge() as target:
        entry = JudgeEntry(role="critic", name="hostile", target=target)
        async with (
            open_registry([entry], calls_per_judge=4) as judges,
            Server(proxy_contracts(judges), ServerSettings.loopback()) as gateway,
            open_channel(gateway.target) as channel,
        ):
            stream = JudgeServiceStub(channel).Judge(request, timeout=20)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                [response async for response in stream]
    error = from_rpc_error(raised.value)
    assert (error.code, error.reason) == (
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
    )
    assert error.message.endswith(f"gave {MAX_UNREQUESTED} answers that were not requested")


class Slow(RatingJudgeServiceServicer):
    """Answers when it is released."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun, self.released = asyncio.Event(), asyncio.Event()

    async def RateReply(self, request: RateReplyRequest, context: object) -> RateReplyResponse:
        self.calls += 1
        self.begun.set()
        await self.released.wait()
        return RateReplyResponse(rating=Rating(value=self.calls))


async def test_a_call_has_the_timeout_of_the_judge() -> None:
    async with passed_on(rater=Slow(), timeout_seconds=0.2) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await RatingJudgeServiceStub(channel).RateReply(RATE, timeout=20)
    error = from_rpc_error(raised.value)
    assert (error.code, error.reason) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
    )
    assert error.message == "the judge 'rater' of the role 'rating-judge' did not answer within 0.2 s"


async def test_a_call_waits_for_a_slot_of_the_judge() -> None:
    rater = Slow()
    async with passed_on(rater=rater, max_concurrent_calls=1) as channel:
        calls = [RatingJudgeServiceStub(channel).RateReply(RATE, timeout=20) for _ in range(3)]
        await rater.begun.wait()
        # The others have reached the gateway once this one, sent after them, is answered there.
        with pytest.raises(grpc.aio.AioRpcError):
            await RatingJudgeServiceStub(channel).RateReply(RateReplyRequest(), timeout=20)
        assert rater.calls == 1
        rater.released.set()
        assert {(await call).rating.value for call in calls} == {1, 2, 3}


async def test_large_answers_are_cut_and_candidates_apart() -> None:
    """The verdict of one candidate has a text of 5 MB, that of another findings of 5 MB."""

    def judged(request: JudgeRequest, candidate: JudgeCandidate) -> Any:
        if candidate.id == "text":
            return [passed("brief", rationale="x" * 5_000_000)]
        if candidate.id == "fine":
            return [passed("brief")]
        one = finding(FINDING_KIND_REDUNDANT_STEP, "x" * 400)
        return [failed("brief", [one] * 12_000)]

    judge = FakeJudge(judged, criteria=["brief"])
    request = JudgeRequest(task=Task(goal="Make tea"))
    for name in ("text", "findings", "fine"):
        request.candidates.add(id=name, text="Boil water.")
    async with (
        serve_gateway(RegisteredJudge("critic", judge.contract(), "theirs")) as gateway,
        open_channel(gateway.target) as channel,
    ):
        found = {one.candidate_id: one async for one in JudgeServiceStub(channel).Judge(request, timeout=20)}
    assert [*sorted(found)] == ["findings", "fine", "text"]
    assert found["fine"].assessment.verdicts[0].outcome == OUTCOME_PASS
    assert len(found["text"].assessment.verdicts[0].rationale) < 21_000
    assert "cut the answer" in found["text"].assessment.provenance.parameters[CORRECTIONS]
    assert len(found["findings"].assessment.verdicts[0].findings) == 200
