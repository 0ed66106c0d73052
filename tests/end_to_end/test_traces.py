"""Traces, events and metrics of an evaluation through separate services, each a process of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.trace import SpanKind

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest, ScriptsResult
from dramaturg.client import DramaturgClient
from dramaturg.results.names import abstention_name
from gateway.evaluations.streams import reason_name
from tests.support.judges import STEPS
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.ports import free_port
from tests.support.processes import ForkedService, ServiceProcess
from tests.support.scripted_model import judge
from tests.support.telemetry import Collector, Scrape, Span, collector, scrape

pytestmark = pytest.mark.slow

TRACE, CALLER = "a1" * 16, "b2" * 8
PLANTED = "a planted sentence that is in no trace"
ANSWERED = "Reasons are in no trace either."
AGENTS = ("synthesize", "critic", "execute", "commonsense")
EVALUATE = "dramaturg.api.evaluation.v1.EvaluationService/EvaluateScripts"
GENERATE = "dramaturg.api.generation.v1.GenerationService/Generate"
GENERATE_BATCH = "dramaturg.api.generation.v1.GenerationService/GenerateBatch"


@dataclass
class Deployment:
    """The processes, and where their metrics are."""

    gateway: ServiceProcess
    model: OpenAIServer
    collector: Collector
    metrics: Mapping[str, int]
    url: str
    """The gateway over HTTP."""

    async def scrape(self, service: str) -> Scrape:
        return await scrape(self.metrics[service])


async def answer(body: Body) -> Answer:
    """Judges, and says nothing of use about one of the criteria."""
    if "executable" in body["response_format"]["json_schema"]["schema"]["properties"]:
        return Answer(f"{ANSWERED} No JSON here.")
    return Answer(judge(body).replace("So it is.", ANSWERED))


@asynccontextmanager
async def deployment(folder: Path, protocol: str) -> AsyncIterator[Deployment]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(OpenAIServer(answer, record=True))
        collecting = await stack.enter_async_context(collector())
        metrics: dict[str, int] = {}
        config = folder / "dramaturg.toml"
        environment = {
            "DRAMATURG_CONFIG": str(config),
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collecting.target}"
            if protocol == "grpc"
            else collecting.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

        http_port = free_port()
        environment["DRAMATURG_GATEWAY_HTTP__PORT"] = str(http_port)

        def process(name: str) -> ServiceProcess:
            metrics[name] = free_port()
            own = {"DRAMATURG_METRICS_PORT": str(metrics[name]), "OTEL_SERVICE_NAME": name}
            made = ForkedService(folder, {**environment, **own}, "serve", name)
            stack.push_async_callback(made.stop)
            return made

        generation = process("generation")
        agents = {name: process(name) for name in AGENTS}
        gateway = process("gateway")
        judges = "\n".join(
            f'[[gateway.judges]]\nrole = "{name}"\nname = "llm"\ntarget = "{agent.target}"'
            for name, agent in agents.items()
        )
        targets = "\n".join(f'[{name}]\ngeneration_target = "{generation.target}"' for name in AGENTS)
        config.write_text(
            f'[generation]\nledger = "{folder / "ledger.sqlite3"}"\n'
            f'[generation.providers.local]\nkind = "chat"\nbase_url = "{model.base_url}"\n'
            f'default_model = "test-model"\n{targets}\n{judges}\n'
        )
        await asyncio.gather(*(one.start() for one in (generation, *agents.values(), gateway)))
        yield Deployment(gateway, model, collecting, metrics, f"http://127.0.0.1:{http_port}")


def request() -> EvaluateScriptsRequest:
    text = "\n".join((*STEPS, PLANTED))
    return EvaluateScriptsRequest(
        task=Task(goal="Make a cup of tea"),
        candidates=[Candidate(id=name, text=f"{text}\nStep of {name}.") for name in ("a", "b")],
    )


async def evaluated(target: str) -> ScriptsResult:
    async with DramaturgClient(target) as client:
        events = [event async for event in client.evaluate_scripts(request(), timeout=60)]
    return events[-1].result


async def evaluated_by_http(url: str) -> None:
    """The same over ``POST /v1/evaluate``, for a caller that has a span."""
    async with (
        aiohttp.ClientSession(headers={"traceparent": f"00-{TRACE}-{CALLER}-01"}) as session,
        session.post(f"{url}/v1/evaluate", json={"scripts": MessageToDict(request())}) as response,
    ):
        assert response.status == 200, await response.text()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_an_evaluation_is_one_tree_and_the_counters_say_what_its_result_says(
    protocol: str, tmp_path: Path
) -> None:
    async with deployment(tmp_path, protocol) as deployed:
        result = await evaluated(deployed.gateway.target)
        # The answer that is no JSON was paid for, and so was the request to repair it.
        gateway, generation = await deployed.scrape("gateway"), await deployed.scrape("generation")
        again = await evaluated(deployed.gateway.target)
        later = await deployed.scrape("generation")
        await evaluated_by_http(deployed.url)
        seen = deployed.collector
        received = [
            {name.lower(): one.headers[name] for name in one.headers} for one in deployed.model.requests
        ]
        provider_calls = sum(deployed.model.calls.values())
    # All processes have ended, and sent what they had.
    check_usage(result, generation)
    check_verdicts(result, gateway)
    hits = later.sum("dramaturg_completion_cache_hits_total")
    assert hits == again.usage.cache_hit_count > 0
    first, second = sorted({span.trace_id for span in seen.named(EVALUATE)} - {TRACE})
    assert provider_calls == len(seen.named("chat test-model"))
    # From the caller to the server of the provider, which is sent the span of its call.
    sent = sorted(headers["traceparent"].split("-")[2] for headers in received)
    assert sent == sorted(span.span_id for span in seen.named("chat test-model"))
    check_events(result, seen)
    for trace in (first, second, TRACE):
        check_tree([span for span in seen.spans if span.trace_id == trace], CALLER if trace == TRACE else "")
    assert {span.trace_id for span in seen.spans} == {first, second, TRACE}
    for secret in (PLANTED, ANSWERED, "Make a cup of tea"):
        assert not [raw for raw in seen.raw if secret.encode() in raw]


def check_usage(result: ScriptsResult, generation: Scrape) -> None:
    assert result.usage.provider_call_count > 0
    tokens = generation.by("dramaturg_tokens_total", "type")
    assert tokens["completion"] == result.usage.completion_token_count
    assert tokens["prompt"] == result.usage.prompt_token_count
    assert generation.sum("dramaturg_provider_calls_total") == result.usage.provider_call_count
    assert generation.sum("dramaturg_unpriced_calls_total") == result.usage.unpriced_call_count
    assert generation.sum("dramaturg_cost_usd_total") == 0
    # The synthesizer asks once, and each of the three judges once for all candidates.
    for method, count in ((GENERATE, 1), (GENERATE_BATCH, 3)):
        served = generation.by("grpc_server_call_duration_seconds_count", "grpc_status", grpc_method=method)
        assert served == {"OK": count}
    assert generation.sum("dramaturg_provider_concurrency_limit", provider="local") >= 1
    assert generation.sum("dramaturg_provider_concurrency_in_use") == 0
    assert generation.sum("process_resident_memory_bytes") > 1e6


def check_verdicts(result: ScriptsResult, gateway: Scrape) -> None:
    verdicts = [verdict for candidate in result.candidates for verdict in candidate.verdicts]
    outcomes = Counter(
        verdict_pb2.Outcome.Name(verdict.outcome).removeprefix("OUTCOME_").lower() for verdict in verdicts
    )
    reasons = Counter(reason_name(verdict.abstain_reason) for verdict in verdicts if verdict.abstain_reason)
    assert reasons["unparsable"] == 2
    counted = gateway.by("dramaturg_judgements_total", "outcome", evaluation="scripts")
    assert counted == {outcome: count for outcome, count in outcomes.items() if count}
    assert gateway.by("dramaturg_abstentions_total", "reason") == reasons
    assert gateway.by("dramaturg_judge_calls_total", "outcome", role="critic") == {"answered": 2}
    assert gateway.by("grpc_server_call_duration_seconds_count", "grpc_status", grpc_method=EVALUATE) == {
        "OK": 1
    }
    assert gateway.sum("dramaturg_server_calls_in_flight") == 0


def check_events(result: ScriptsResult, seen: Collector) -> None:
    """Each evaluation has an event for each verdict: of the caller's span, or of the gateway's."""
    verdicts = [verdict for candidate in result.candidates for verdict in candidate.verdicts]
    assert {event.name for event in seen.events} == {"gen_ai.evaluation.result"}
    for span in seen.named(EVALUATE):
        owner = span.parent_id or span.span_id
        events = [event.attributes for event in seen.events if event.span_id == owner]
        assert [event["gen_ai.evaluation.name"] for event in events] == [one.criterion for one in verdicts]
        reasons = Counter(
            reason for event in events if (reason := event.get("dramaturg.evaluation.abstain_reason"))
        )
        assert reasons == Counter(
            abstention_name(one.abstain_reason) for one in verdicts if one.abstain_reason
        )
        assert all(event["dramaturg.judge.name"] == "llm" for event in events)
        assert all(event["dramaturg.judge.prompt_sha256"] for event in events)


def check_tree(spans: list[Span], caller: str) -> None:
    by_id = {span.span_id: span for span in spans}
    (root,) = [span for span in spans if span.parent_id == caller]
    assert (root.name, root.kind, root.service) == (EVALUATE, SpanKind.SERVER, "gateway")
    assert all(span.parent_id in by_id for span in spans if span is not root)
    for span in spans:
        parent = by_id.get(span.parent_id)
        if span.kind is SpanKind.SERVER and parent is not None:
            # What is served is under the call that another process made.
            assert (parent.kind, parent.name) == (SpanKind.CLIENT, span.name)
            assert parent.service != span.service
            assert span.attributes["rpc.response.status_code"] == "OK"
    served = [span for span in spans if span.kind is SpanKind.SERVER]
    agents = {span.service for span in served if by_id.get(span.parent_id, root) is not root}
    assert agents == {*AGENTS, "generation"}
    called = [by_id[span.parent_id] for span in served if span.service in AGENTS]
    assert {call.parent_id for call in called} == {root.span_id}
    parents = {span.parent_id for span in spans}
    for span in spans:
        if span.name == "chat test-model":
            assert span.span_id not in parents
            assert by_id[span.parent_id].name in (GENERATE, GENERATE_BATCH)
            check_provider_span(span)


def check_provider_span(span: Span) -> None:
    attributes = dict(span.attributes)
    assert attributes.pop("gen_ai.usage.input_tokens") > 0
    assert attributes.pop("gen_ai.usage.output_tokens") > 0
    assert attributes.pop("server.port") > 0
    expected = {
        "gen_ai.operation.name": "chat",
        "server.address": "127.0.0.1",
        "gen_ai.provider.name": "local",
        "gen_ai.request.model": "test-model",
        "gen_ai.response.model": "test-model",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.output.type": "json",
    }
    assert expected.items() <= attributes.items()
    assert not [name for name in attributes if "messages" in name]
