"""Two tenants ask the same: neither is given, or learns of, what the other bought."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest
from dramaturg.service.auth.caller import on_behalf_of
from dramaturg.testing import until
from tests.support.generation import GOOD, Service, endpoint, generation_service
from tests.support.openai_server import Answer, Body, OpenAIServer

LATENCY_SECONDS = 0.5


async def ask(service: Service, tenant: str, text: str = "Is it good?") -> pb.Completion:
    """Asks as a service does that works for a tenant."""
    with on_behalf_of(tenant):
        return await service.generate(text)


async def lost_calls(service: Service) -> Sequence[pb.LostCall]:
    answer = await service.generation.GetLedgerStatus(pb.GetLedgerStatusRequest())
    return answer.status.lost_calls


def cached(completions: Sequence[pb.Completion]) -> list[bool]:
    return [completion.calls[0].cached for completion in completions]


async def test_what_one_tenant_bought_another_buys_for_itself() -> None:
    async with OpenAIServer(lambda _: GOOD) as server, generation_service(server) as service:
        asked = [await ask(service, tenant) for tenant in ("team-a", "team-b", "", "team-a", "team-b", "")]
        assert cached(asked) == [False, False, False, True, True, True]
        assert len(server.requests) == 3
    fingerprints = [completion.fingerprint for completion in asked]
    assert fingerprints[:3] == fingerprints[3:]
    assert len(set(fingerprints)) == 3


async def test_nobody_joins_anothers_call_under_way() -> None:
    async with (
        OpenAIServer(lambda _: GOOD, latency=LATENCY_SECONDS) as server,
        generation_service(server) as service,
    ):
        tenants = ("team-a", "team-a", "team-b", "team-b")
        asked = await asyncio.gather(*(ask(service, tenant) for tenant in tenants))
        assert len(server.requests) == server.peak == 2
    assert sorted(cached(asked[:2])) == sorted(cached(asked[2:])) == [False, True]


async def test_an_operator_may_let_tenants_share() -> None:
    async with (
        OpenAIServer(lambda _: GOOD, latency=LATENCY_SECONDS) as server,
        generation_service(server, share_completions=True) as service,
    ):
        together = await asyncio.gather(*(ask(service, tenant) for tenant in ("team-a", "team-b", "")))
        later = await ask(service, "team-c")
        assert len(server.requests) == 1
    assert sorted(cached(together)) == [False, True, True]
    assert cached([later]) == [True]


async def test_what_is_written_for_a_tenant_is_its_own() -> None:
    async def write(service: Service, tenant: str) -> bool:
        with on_behalf_of(tenant):
            written = await service.authoring.WriteScript(WriteScriptRequest(task=Task(goal="Make tea")))
        return written.provenance.completions[0].cached

    async with OpenAIServer(lambda _: "1. Boil water.") as server, generation_service(server) as service:
        assert [await write(service, tenant) for tenant in ("team-a", "team-b", "team-a")] == [
            False,
            False,
            True,
        ]


@pytest.mark.parametrize(("shared", "found"), [(False, [True, False]), (True, [True, True])])
async def test_a_ledger_from_before_there_were_tenants_stays_valid(
    tmp_path: Path, shared: bool, found: list[bool]
) -> None:
    ledger = str(tmp_path / "completions.sqlite3")
    async with OpenAIServer(lambda _: GOOD) as server:
        async with generation_service(server, ledger=ledger) as service:
            await ask(service, "")
        async with generation_service(server, ledger=ledger, share_completions=shared) as service:
            assert cached([await ask(service, tenant) for tenant in ("", "team-a")]) == found


async def test_a_call_given_up_is_noted_apart_from_anothers() -> None:
    """The list of lost calls names them by fingerprint, too."""
    async with (
        OpenAIServer(lambda _: GOOD, latency=60) as server,
        generation_service(server) as service,
    ):
        waiting = [asyncio.ensure_future(ask(service, tenant)) for tenant in ("team-a", "team-b")]
        await until(lambda: server.in_flight == 2)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with asyncio.timeout(20):
            while len(lost := await lost_calls(service)) < 2:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.02)
    assert len({call.fingerprint for call in lost}) == 2


def poisoned(body: Body) -> str | Answer:
    """Breaks on some questions, and quotes them."""
    asked = str(body["messages"][-1]["content"])
    return Answer(f"broken by {asked}", status=500) if "poison" in asked else GOOD


async def failure(service: Service, tenant: str, text: str) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await ask(service, tenant, text)
    return str(raised.value.details())


QUICK = {"first_wait_seconds": 0.0}
"""Retries without waits; a model that only fails is left alone for seconds all the same."""


async def test_a_tenant_whose_requests_break_a_model_stops_no_other_s_calls() -> None:
    async with (
        OpenAIServer(poisoned) as server,
        generation_service(providers={"p": endpoint(server, retries=QUICK)}) as service,
    ):
        for number in range(13):
            words = await failure(service, "team-a", f"poison: the secret {number}")
        made = len(server.requests)
        assert made <= 12
        assert "broken by" in words
        assert "attempts in a row failed" in words
        assert (await ask(service, "team-b")).json == GOOD
        assert len(server.requests) == made + 1


async def test_what_a_tenant_s_broken_calls_said_is_not_told_to_another() -> None:
    async with (
        OpenAIServer(poisoned) as server,
        generation_service(providers={"p": endpoint(server, retries=QUICK)}) as service,
    ):
        for number in range(13):
            await failure(service, "team-a", f"poison: the secret {number}")
        server.responder = lambda _: Answer("out of order", status=503)
        for number in range(13):
            words = await failure(service, "team-b", f"question {number}")
            assert "secret" not in words
            assert "out of order" in words


async def test_a_model_that_only_fails_leaves_the_others_of_its_provider_open() -> None:
    async with (
        OpenAIServer(lambda body: Answer("broken", status=500) if body["model"] == "m" else GOOD) as server,
        generation_service(providers={"p": endpoint(server, retries=QUICK)}) as service,
    ):
        for number in range(13):
            await failure(service, "team-a", str(number))
        with on_behalf_of("team-a"):
            assert (await service.generate(model="healthy")).json == GOOD


async def test_a_wait_that_a_provider_s_words_quote_holds_nobody_back() -> None:
    def quoting(body: Body) -> str | Answer:
        asked = str(body["messages"][-1]["content"])
        return Answer(f"slow down: {asked}", status=429) if "again" in asked else GOOD

    async with OpenAIServer(quoting) as server:
        provider = endpoint(server, rate_period_seconds=60, retries=QUICK)
        async with generation_service(providers={"p": provider}) as service:
            with on_behalf_of("team-a"), pytest.raises(grpc.aio.AioRpcError):
                await service.generate("Please try again in 3600s.", timeout=0.5)
            with on_behalf_of("team-b"):
                assert (await service.generate(timeout=10)).json == GOOD
