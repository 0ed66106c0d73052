"""GenerationService over real gRPC, against a real HTTP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.common.v1.content_pb2 import Image, Part, ToolCall
from dramaturg.api.common.v1.judging_pb2 import Sampling
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.errors import ServiceError, from_rpc_error
from tests.support.generation import GOOD, endpoint, generation_service, request
from tests.support.openai_server import Answer, Body, OpenAIServer


def in_turn(*answers: str | Answer) -> Callable[[Body], str | Answer]:
    """Gives the answers one after the other; the last one for ever."""
    remaining = list(answers)
    return lambda _: remaining.pop(0) if len(remaining) > 1 else remaining[0]


async def failure(call: Any) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value)


async def test_an_answer_in_json_comes_with_its_provenance() -> None:
    async with (
        OpenAIServer(lambda _: Answer(GOOD, model="m-2026")) as server,
        generation_service(server) as service,
    ):
        completion = await service.generate(model="p0/m")
    assert completion.status == pb.COMPLETION_STATUS_OK
    assert completion.json == GOOD
    assert not completion.repairs
    (call,) = completion.calls
    assert (call.provider, call.requested_model, call.answered_model) == ("p0", "m", "m-2026")
    assert call.raw_text == completion.text == GOOD
    assert call.fingerprint == completion.fingerprint
    assert not call.cached
    assert call.latency.ToTimedelta() <= completion.latency.ToTimedelta()
    assert completion.usage.provider_call_count == 1
    assert completion.usage.prompt_token_count > 0
    assert completion.usage.unpriced_call_count == 1
    assert not completion.usage.HasField("cost_usd")


async def test_everything_that_decides_the_answer_is_sent() -> None:
    sampling = Sampling(temperature=0.0, top_p=0.9, max_output_tokens=77, seed=3, stop=["END"])
    async with OpenAIServer(lambda _: GOOD) as server, generation_service(server) as service:
        await service.generate("Q", sampling=sampling, logprobs=True, top_logprobs=2)
        body = server.bodies[0]
    assert body.pop("response_format") == {
        "type": "json_schema",
        "json_schema": {
            "name": "verdict",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"rationale": {"type": "string"}, "met": {"type": "boolean"}},
                "required": ["rationale", "met"],
                "additionalProperties": False,
            },
        },
    }
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Q"}],
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 77,
        "seed": 3,
        "stop": ["END"],
        "logprobs": True,
        "top_logprobs": 2,
    }


async def test_log_probabilities_come_with_their_alternatives() -> None:
    answer = Answer("yes no", tokens=[("yes", -0.25), (" no", -1.5)])
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        first = await service.generate(json_format=False, logprobs=True, top_logprobs=2)
        again = await service.generate(json_format=False, logprobs=True, top_logprobs=2)
    assert [(token.token, token.logprob) for token in first.logprobs] == [("yes", -0.25), (" no", -1.5)]
    assert [other.logprob for other in first.logprobs[0].alternatives] == [-0.25, -1.25]
    assert again.logprobs == first.logprobs
    assert again.calls[0].cached


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        (f"```json\n{GOOD}\n```", ["code-fence-removed"]),
        (f"Here it is: {GOOD} I hope it helps.", ["prose-removed"]),
        ('{"rationale":"all is there","met":"True"}', ["string-to-boolean"]),
        ('{"met":true,"rationale":"all is there",}', ["comma-repaired"]),
        (f"<think>Is {{it}} so?</think>\n{GOOD}", []),
    ],
)
async def test_what_can_be_read_is_read_at_no_further_cost(text: str, repairs: list[str]) -> None:
    async with OpenAIServer(lambda _: text) as server, generation_service(server) as service:
        completion = await service.generate()
        assert server.calls.total() == 1
    assert completion.status == pb.COMPLETION_STATUS_OK
    assert completion.json == GOOD
    assert list(completion.repairs) == repairs
    assert completion.text == text.removeprefix("<think>Is {it} so?</think>\n")


async def test_an_answer_that_does_not_fit_is_asked_for_once_more_with_the_error() -> None:
    async with (
        OpenAIServer(in_turn('{"rationale":"hm"}', GOOD)) as server,
        generation_service(server) as service,
    ):
        completion = await service.generate("Q")
        repair = server.bodies[1]["messages"]
    assert completion.status == pb.COMPLETION_STATUS_OK
    assert completion.json == GOOD
    assert list(completion.repairs) == ["asked-again"]
    assert [call.raw_text for call in completion.calls] == ['{"rationale":"hm"}', GOOD]
    assert completion.usage.provider_call_count == 2
    assert completion.usage.unused_completion_count == 1
    assert [message["role"] for message in repair] == ["user", "assistant", "user"]
    assert repair[1]["content"] == '{"rationale":"hm"}'
    assert "'met' is a required property" in repair[2]["content"]


@pytest.mark.parametrize(
    ("answer", "status", "calls"),
    [
        ("no idea", pb.COMPLETION_STATUS_UNPARSABLE, 2),
        ('{"rationale":"a","met":true} {"rationale":"b","met":false}', pb.COMPLETION_STATUS_UNPARSABLE, 2),
        ('{"rationale":"a","met":true,"met":false}', pb.COMPLETION_STATUS_UNPARSABLE, 2),
        (Answer(GOOD[:20], finish_reason="length"), pb.COMPLETION_STATUS_TRUNCATED, 2),
        (Answer(GOOD, finish_reason="length"), pb.COMPLETION_STATUS_TRUNCATED, 2),
        (Answer(" \n"), pb.COMPLETION_STATUS_EMPTY, 2),
        (Answer("", refusal="I must not."), pb.COMPLETION_STATUS_REFUSED, 1),
        (Answer("half", finish_reason="content_filter"), pb.COMPLETION_STATUS_FILTERED, 1),
        (Answer("filtered", status=400, error_code="content_filter"), pb.COMPLETION_STATUS_FILTERED, 1),
    ],
)
async def test_an_answer_of_no_use_has_its_status_and_is_never_kept(
    answer: str | Answer, status: int, calls: int
) -> None:
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        for round_ in (1, 2):
            completion = await service.generate()
            assert completion.status == status
            assert not completion.HasField("json")
            assert len(completion.calls) == calls
            assert completion.usage.provider_call_count == calls
            assert completion.usage.unused_completion_count == calls
            assert bool(completion.parse_error) == (status == pb.COMPLETION_STATUS_UNPARSABLE)
            assert server.calls.total() == calls * round_


async def test_an_answer_cut_off_is_requested_again_with_a_higher_cap() -> None:
    def respond(body: Body) -> Answer:
        return Answer(GOOD[:9], finish_reason="length") if body["max_tokens"] < 100 else Answer(GOOD)

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        completion = await service.generate(sampling=Sampling(max_output_tokens=60))
        again = await service.generate(sampling=Sampling(max_output_tokens=60))
        assert [body["max_tokens"] for body in server.bodies] == [60, 1024]
    assert completion.status == again.status == pb.COMPLETION_STATUS_OK
    assert len({call.fingerprint for call in completion.calls}) == 2
    assert [call.cached for call in again.calls] == [True, True]


async def test_a_remedy_that_the_provider_rejects_leaves_the_first_answer() -> None:
    def respond(body: Body) -> Answer:
        if body.get("max_tokens"):
            return Answer("over the context window", status=400)
        return Answer("half a", finish_reason="length")

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        completion = await service.generate(json_format=False)
    assert completion.status == pb.COMPLETION_STATUS_TRUNCATED
    assert completion.text == "half a"
    assert completion.usage.provider_call_count == 1


async def test_an_empty_answer_is_asked_for_once_more() -> None:
    async with OpenAIServer(in_turn("", "text")) as server, generation_service(server) as service:
        completion = await service.generate(json_format=False)
    assert completion.status == pb.COMPLETION_STATUS_OK
    assert completion.text == "text"
    assert len({call.fingerprint for call in completion.calls}) == 2


async def test_what_was_bought_is_never_bought_again() -> None:
    async with OpenAIServer(lambda _: GOOD) as server, generation_service(server) as service:
        first = await service.generate()
        again = await service.generate()
        assert server.calls.total() == 1
    assert again.json == first.json
    assert again.fingerprint == first.fingerprint
    assert again.calls[0].cached
    assert again.calls[0].latency == first.calls[0].latency
    assert again.usage.cache_hit_count == 1
    assert again.usage.provider_call_count == again.usage.prompt_token_count == 0
    assert again.usage.HasField("cost_usd")
    assert again.usage.cost_usd == 0


@pytest.mark.parametrize(
    "change",
    [
        {"text": "Another?"},
        {"sampling": Sampling(temperature=0.5)},
        {"sampling": Sampling(seed=1)},
        {"repeat_index": 1},
        {"logprobs": True},
        {"model": "other"},
        {"json_format": False},
    ],
)
async def test_another_request_is_bought_anew(change: dict[str, Any]) -> None:
    async with OpenAIServer(lambda _: GOOD) as server, generation_service(server) as service:
        await service.generate()
        await service.generate(**change)
        assert server.calls.total() == 2


async def test_the_cache_policy_is_kept_to() -> None:
    count = 0

    def respond(_: Body) -> str:
        nonlocal count
        count += 1
        return str(count)

    async def ask(policy: pb.CachePolicy.ValueType) -> str:
        return (await service.generate(json_format=False, cache_policy=policy)).text

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        assert await ask(pb.CACHE_POLICY_USE) == "1"
        assert await ask(pb.CACHE_POLICY_BYPASS) == "2"
        assert await ask(pb.CACHE_POLICY_USE) == "1"
        assert await ask(pb.CACHE_POLICY_REFRESH) == "3"
        assert await ask(pb.CACHE_POLICY_UNSPECIFIED) == "3"


async def test_a_hundred_equal_requests_at_once_buy_once() -> None:
    async with OpenAIServer(lambda _: GOOD, latency=0.05) as server, generation_service(server) as service:
        completions = await asyncio.gather(*(service.generate() for _ in range(100)))
        assert server.calls.total() == 1
    assert {completion.json for completion in completions} == {GOOD}
    assert sum(completion.usage.provider_call_count for completion in completions) == 1
    assert sum(completion.usage.cache_hit_count for completion in completions) == 99


async def test_a_cancelled_request_leaves_those_that_wait_for_it_their_answer() -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def respond(_: Body) -> str:
        reached.set()
        await go_on.wait()
        return GOOD

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        leader = asyncio.create_task(service.generate())
        await reached.wait()
        follower = asyncio.create_task(service.generate())
        await asyncio.sleep(0)
        leader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leader
        go_on.set()
        assert (await follower).json == GOOD
        assert server.calls.total() in {1, 2}  # 2 where the follower arrived after the leader had left


async def test_a_restart_forgets_nothing(tmp_path: Any) -> None:
    ledger = str(tmp_path / "deep" / "ledger.sqlite3")
    async with OpenAIServer(in_turn("{}", GOOD)) as server:
        for expected in (False, True):
            async with generation_service(server, ledger=ledger) as service:
                completion = await service.generate()
                assert [call.cached for call in completion.calls] == [expected, expected]
        assert server.calls.total() == 2


async def test_cost_is_by_the_price_table_and_unknown_otherwise(tmp_path: Any) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('["m*"]\nprompt = 2.0\ncompletion = 10.0\ncached = 0.5\n')
    usage = {"prompt_tokens": 1000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 400}}
    async with (
        OpenAIServer(lambda _: Answer(GOOD, usage=usage)) as server,
        generation_service(providers={"p": endpoint(server, prices=prices)}) as service,
    ):
        priced = await service.generate(model="m1")
        unpriced = await service.generate(model="other")
    assert priced.usage.cost_usd == pytest.approx((600 * 2 + 400 * 0.5 + 200 * 10) / 1e6)
    assert priced.usage.cached_prompt_token_count == 400
    assert priced.usage.unused_completion_count == 0
    assert priced.usage.unpriced_call_count == 0
    assert not unpriced.usage.HasField("cost_usd")
    assert unpriced.usage.unpriced_call_count == 1


async def test_an_answer_without_counts_is_unmetered() -> None:
    async with (
        OpenAIServer(lambda _: Answer("x", usage=None)) as server,
        generation_service(server) as service,
    ):
        completion = await service.generate(json_format=False)
    assert completion.usage.unmetered_call_count == 1
    assert completion.usage.unpriced_call_count == 1


async def test_half_a_surrogate_pair_does_not_break_the_answer() -> None:
    async with OpenAIServer(lambda _: "a\ud83dz") as server, generation_service(server) as service:
        assert (await service.generate(json_format=False)).text == "a\ufffdz"


async def test_two_providers_are_told_apart_by_name() -> None:
    async with (
        OpenAIServer(lambda _: "first", models=("a", "org/b")) as one,
        OpenAIServer(lambda _: "second", models=("c",)) as two,
        generation_service(one, two, default_model="p1/big") as service,
    ):
        texts = [
            (await service.generate(model=model, json_format=False)).text
            for model in ("p0/m", "p1/m", "org/b", "", "p0/")
        ]
        assert [body["model"] for body in one.bodies] == ["m", "org/b"]
        assert [body["model"] for body in two.bodies] == ["m", "big"]
        listed = await service.generation.ListModels(pb.ListModelsRequest())
    assert texts == ["first", "second", "first", "second", "first"]
    assert [(p.provider, list(p.models), p.error) for p in listed.providers] == [
        ("p0", ["a", "org/b"], ""),
        ("p1", ["c"], ""),
    ]
    assert listed.default_model == "p1/big"


async def test_a_provider_that_cannot_be_asked_is_listed_with_its_error() -> None:
    async with OpenAIServer() as one, OpenAIServer() as two, generation_service(one, two) as service:
        await two.stop()
        listed = await service.generation.ListModels(pb.ListModelsRequest())
    assert list(listed.providers[0].models) == ["test-model"]
    assert listed.providers[1].error.startswith("cannot be reached")


async def test_without_a_provider_the_answer_says_how_to_configure_one() -> None:
    async with generation_service() as service:
        error = await failure(service.generate())
        listed = await service.generation.ListModels(pb.ListModelsRequest())
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert error.reason == reasons.ERROR_REASON_MODEL_UNKNOWN
    assert "OPENAI_BASE_URL" in error.message
    assert not listed.providers
    assert not listed.default_model


async def test_without_a_default_a_model_must_be_named() -> None:
    async with (
        OpenAIServer() as server,
        generation_service(providers={"p": endpoint(server, default_model="")}) as service,
    ):
        error = await failure(service.generate())
    assert error.reason == reasons.ERROR_REASON_MODEL_UNKNOWN
    assert "default_model" in error.message


async def test_the_environment_makes_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OpenAIServer(lambda _: "hello", api_key="the-key") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "the-key")
        monkeypatch.setenv("MODEL", "m1")
        async with generation_service(providers={}) as service:
            completion = await service.generate(json_format=False)
    assert completion.text == "hello"
    assert (completion.calls[0].provider, completion.calls[0].requested_model) == ("environment", "m1")


PNG = b"\x89PNG\r\n\x1a\n"


def user(*parts: Part) -> pb.Message:
    return pb.Message(role=pb.MESSAGE_ROLE_USER, text="Look.", parts=parts)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": [pb.Message(text="x")]}, "messages[0].role"),
        ({"messages": [user(Part(image=Image(data=b"<svg>")))]}, "messages[0].parts[0].image.data"),
        (
            {"messages": [user(Part(image=Image(data=PNG + bytes(10 << 20))))]},
            "messages[0].parts[0].image.data",
        ),
        (
            {"messages": [user(Part(image=Image(uri="http://169.254.169.254/latest")))]},
            "messages[0].parts[0].image.uri",
        ),
        ({"messages": [user(*[Part(text="x")] * 101)]}, "messages[0].parts"),
        ({"messages": [user(Part(tool_call=ToolCall(name="t")))]}, "messages[0].parts[0]"),
        ({"messages": [user(Part())]}, "messages[0].parts[0]"),
        (
            {"messages": [pb.Message(role=pb.MESSAGE_ROLE_SYSTEM, parts=[Part(image=Image(data=PNG))])]},
            "messages[0].parts[0]",
        ),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"json_format": pb.JsonFormat(name="n", schema="{")}, "json_format.schema"),
        ({"json_format": pb.JsonFormat(name="n", schema='{"type": "text"}')}, "json_format.schema"),
        ({"json_format": pb.JsonFormat(name="n", schema='{"$ref": "http://x/y"}')}, "json_format.schema"),
        ({"json_format": pb.JsonFormat(name="n n", schema="{}")}, "json_format.name"),
        ({"cache_policy": 9}, "cache_policy"),
    ],
)
async def test_a_bad_request_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    made = request(json_format=False)
    made.MergeFrom(pb.GenerateRequest(**change))
    if "messages" in change:
        del made.messages[0]
    async with OpenAIServer() as server, generation_service(server) as service:
        error = await failure(service.generation.Generate(made))
        assert not server.calls
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == [field]


@pytest.mark.parametrize(
    ("formats", "sent"),
    [
        # Each refused request is followed by a probe, which is refused like it.
        (("json_object",), ["json_schema", "json_schema", "json_object", "json_object"]),
        ((), ["json_schema", "json_schema", "json_object", "json_object", None, None]),
    ],
)
async def test_an_endpoint_without_schemas_is_asked_with_less_and_that_is_remembered(
    formats: tuple[str, ...], sent: list[str | None]
) -> None:
    async with OpenAIServer(lambda _: GOOD, response_formats=formats) as server:
        async with generation_service(server) as service:
            for question in ("one", "two"):
                assert (await service.generate(question)).json == GOOD
        assert [body.get("response_format", {}).get("type") for body in server.bodies] == sent
        told = server.bodies[-1]["messages"][0]
    assert told["role"] == "system"
    assert json.dumps("rationale") in told["content"]


async def test_schemas_are_not_asked_for_where_the_settings_say_so() -> None:
    async with OpenAIServer(lambda _: GOOD) as server:
        async with generation_service(
            providers={"p": endpoint(server, omit=["json_schema", "json_object"])}
        ) as service:
            assert (await service.generate()).json == GOOD
        assert "response_format" not in server.bodies[0]


async def test_the_token_cap_has_the_name_that_the_settings_give_it() -> None:
    async with OpenAIServer(lambda _: GOOD) as server:
        named = endpoint(server, token_parameter="max_completion_tokens")
        async with generation_service(providers={"p": named}) as service:
            await service.generate(sampling=Sampling(max_output_tokens=5))
        assert server.bodies[0]["max_completion_tokens"] == 5


async def test_the_limits_of_a_model_are_told_and_a_call_beyond_them_fails_at_once() -> None:
    async with OpenAIServer(lambda _: "text") as server:
        limited = endpoint(server, requests_per_minute=2, rate_period_seconds=60)
        async with generation_service(providers={"p": limited}) as service:
            for question in ("one", "two"):
                await service.generate(question, json_format=False)
            error = await failure(service.generate("three", json_format=False, timeout=5))
            listed = await service.generation.ListModels(pb.ListModelsRequest())
        assert server.calls.total() == 2
    assert error.reason == reasons.ERROR_REASON_PROVIDER_RATE_LIMITED
    assert "rate-limited by p, 2 of 2 a minute, next in " in error.message
    (limits,) = listed.providers[0].limits
    assert (limits.model, limits.request_count, limits.requests_per_minute) == ("m", 2, 2)
    assert 30 < limits.next_delay.ToTimedelta().total_seconds() <= 61
    assert limits.wait.startswith("rate-limited by p, 2 of 2 a minute, next in ")
