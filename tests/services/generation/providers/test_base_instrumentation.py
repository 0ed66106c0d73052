"""Calls to providers as they are counted and traced."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from dramaturg.service.auth.caller import on_behalf_of
from services.generation import calls
from services.generation.calls import Deadline, FailureKind, ProviderError, Until
from services.generation.providers.base import InstrumentedProvider, Provider
from tests.support.generation import GOOD, WITHOUT_WAITS, endpoint, generation_service
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.telemetry import counted, traced

PLANTED = "what is judged"


class Moody:
    """Refuses for the rate, breaks, and then answers."""

    def __init__(self, *first: Answer) -> None:
        self.first = list(first)

    def __call__(self, body: Body) -> Answer | str:
        return self.first.pop(0) if self.first else GOOD


TOO_FAST = Answer("slower", status=429, headers={"retry-after": "0"})
BROKEN = Answer("broken", status=500)


async def test_calls_are_counted_by_outcome_and_retries_by_cause() -> None:
    with counted() as counts:
        async with (
            OpenAIServer(Moody(TOO_FAST, BROKEN, BROKEN)) as server,
            generation_service(server) as service,
        ):
            completion = await service.generate()
            found = counts.now()
    assert completion.usage.retried_call_count == 3
    outcomes = {"answered": 1, "rate-limited": 1, "transient": 2}
    assert found.by("dramaturg_provider_calls_total", "outcome", provider="p0") == outcomes
    retries = {"rate-limited": 1, "transient": 2}
    assert found.by("dramaturg_provider_retries_total", "cause", provider="p0") == retries
    convention = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "p0"}
    assert found.sum("gen_ai_client_operation_duration_seconds_count", provider="p0", **convention) == 4
    assert found.by("dramaturg_completions_total", "status") == {"ok": 1}


async def test_tokens_cost_and_what_was_not_bought_are_those_of_the_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dramaturg.access")
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"m": {"prompt": 2.0, "completion": 4.0}}))
    with counted() as counts:
        async with (
            OpenAIServer(lambda _: GOOD) as server,
            generation_service(providers={"priced": endpoint(server, prices=prices)}) as service,
        ):
            with on_behalf_of("team-a"):
                bought = [await service.generate(text) for text in ("one", "two")]
                kept = await service.generate("one")
            found = counts.now()
    usages = [completion.usage for completion in bought]
    tokens = found.by("dramaturg_tokens_total", "type", provider="priced", model="m")
    assert tokens["prompt"] == sum(usage.prompt_token_count for usage in usages) > 0
    assert tokens["completion"] == sum(usage.completion_token_count for usage in usages) > 0
    used = found.by("gen_ai_client_token_usage_sum", "gen_ai_token_type", gen_ai_request_model="m")
    assert used == {"input": tokens["prompt"], "output": tokens["completion"]}
    assert found.sum("dramaturg_cost_usd_total") == pytest.approx(sum(usage.cost_usd for usage in usages))
    assert found.sum("dramaturg_cost_usd_total") > 0
    mine = found.by("dramaturg_tenant_tokens_total", "type", tenant="team-a")
    assert mine == {kind: tokens[kind] for kind in ("prompt", "completion")}
    assert found.by("dramaturg_tenant_cost_usd_total", "tenant") == {
        "team-a": found.sum("dramaturg_cost_usd_total")
    }
    assert found.by("dramaturg_tenant_calls_total", "tenant") == {"team-a": 2}
    lines = [one.__dict__["fields"] for one in caplog.records if one.name == "dramaturg.access"]
    spent = [one for one in lines if "tokens" in one]
    assert {one["tenant"] for one in spent} == {"team-a"}
    assert sum(one["provider_calls"] for one in spent) == 2
    assert sum(one["tokens"] for one in spent) == sum(mine.values())
    assert sum(one["cost_usd"] for one in spent) == pytest.approx(found.sum("dramaturg_cost_usd_total"))
    assert found.sum("dramaturg_unpriced_calls_total") == 0
    assert found.sum("dramaturg_completion_cache_hits_total") == kept.usage.cache_hit_count == 1
    assert found.sum("dramaturg_ledger_write_duration_seconds_count", operation="put") == 2
    assert found.sum("dramaturg_ledger_failures_total") == 0


async def test_the_limit_that_was_found_is_shown() -> None:
    concurrency = {"start": 7, "maximum": 9}
    with counted() as counts:
        async with (
            OpenAIServer(lambda _: GOOD) as server,
            generation_service(providers={"p": endpoint(server, concurrency=concurrency)}) as service,
        ):
            await service.generate()
            found = counts.now()
    assert found.sum("dramaturg_provider_concurrency_limit", provider="p") == 7
    assert found.sum("dramaturg_provider_concurrency_in_use", provider="p") == 0


async def test_every_attempt_is_a_span_without_any_text() -> None:
    with traced() as spans:
        async with OpenAIServer(Moody(BROKEN)) as server, generation_service(server) as service:
            await service.generate(PLANTED)
    failed, answered = [span for span in spans if span.name == "chat m"]
    assert failed.attributes["error.type"] == "transient"
    assert answered.attributes["gen_ai.request.model"] == "m"
    assert answered.attributes["gen_ai.usage.input_tokens"] > 0
    assert not [span for span in spans if PLANTED.encode() in span.raw or b"all is there" in span.raw]


async def test_prompts_and_answers_are_in_spans_where_that_is_set() -> None:
    with traced(contents=True) as spans:
        async with OpenAIServer(lambda _: GOOD) as server, generation_service(server) as service:
            await service.generate(PLANTED)
    (span,) = [span for span in spans if span.name == "chat m"]
    asked = json.loads(span.attributes["gen_ai.input.messages"])
    answered = json.loads(span.attributes["gen_ai.output.messages"])
    assert asked == [{"role": "user", "parts": [{"type": "text", "content": PLANTED}]}]
    assert answered == [{"role": "assistant", "parts": [{"type": "text", "content": GOOD}]}]


async def test_a_call_that_is_given_up_is_counted_as_cut() -> None:
    retries = {**WITHOUT_WAITS, "attempt_timeout_seconds": 0.1, "transient_attempts": 1}
    with counted() as counts:
        async with (
            OpenAIServer(lambda _: GOOD, latency=30) as server,
            generation_service(providers={"p": endpoint(server, retries=retries)}) as service,
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await service.generate()
            found = counts.now()
    assert found.by("dramaturg_provider_calls_total", "outcome") == {"cut": 1}


async def test_the_providers_server_gets_the_trace_context_of_the_span_of_its_call() -> None:
    with traced() as spans:
        async with (
            OpenAIServer(Moody(BROKEN), record=True) as server,
            generation_service(server) as service,
        ):
            await service.generate()
            received = [{name.lower(): one.headers[name] for name in one.headers} for one in server.requests]
    attempts = [span for span in spans if span.name == "chat m"]
    assert len(attempts) == 2
    sent = [headers["traceparent"].split("-")[1:3] for headers in received]
    assert sent == [[span.trace_id, span.span_id] for span in attempts]


async def test_a_span_names_the_provider_by_the_conventions() -> None:
    class Unavailable(Provider):
        name = "primary"
        address = default_model = ""
        keeps = False

        async def complete(self, call: calls.Call, deadline: Deadline) -> calls.Answer:
            raise ProviderError(FailureKind.TRANSIENT, self.name, "down")

        async def models(self) -> Sequence[str]:
            return []

        async def close(self) -> None: ...

    provider = InstrumentedProvider(Unavailable(), "https://api.mistral.ai/v1")
    with traced() as spans, pytest.raises(ProviderError):
        await provider.complete(calls.Call("m", ()), Until(None))
    (span,) = spans
    assert span.attributes["gen_ai.provider.name"] == "mistral_ai"
    assert (span.attributes["server.address"], span.attributes["server.port"]) == ("api.mistral.ai", 443)
    assert span.attributes["dramaturg.provider.name"] == "primary"
