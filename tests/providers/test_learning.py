"""What a model refuses is learnt once, remembered for a while, and for that model alone."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import grpc
import pytest

from dramaturg.api.common.v1.judging_pb2 import Sampling
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.auth.caller import on_behalf_of
from tests.providers.scripted_server import Reply, error, message, scripted_server
from tests.support.generation import GOOD, generation_service
from tests.support.openai_server import Body

TEMPERATURE = Sampling(temperature=0.0)


def fussy(body: Body) -> Reply:
    """Refuses a temperature, and schemas."""
    if "temperature" in body:
        return Reply(error("Unsupported value: 'temperature' does not support 0.0 with this model."), 400)
    if (body.get("response_format") or {}).get("type") == "json_schema":
        return Reply(error("response_format of type json_schema is not supported"), 400)
    return Reply(message(GOOD))


async def test_concurrent_calls_learn_once() -> None:
    async with (
        scripted_server(fussy) as server,
        generation_service(providers={"p": {"base_url": server.base_url, "default_model": "m"}}) as service,
    ):
        answered = await asyncio.gather(
            *(service.generate(f"question {number}", sampling=TEMPERATURE) for number in range(40))
        )
    assert all(completion.status == pb.COMPLETION_STATUS_OK for completion in answered)
    assert all(
        list(completion.calls[0].omitted_parameters) == ["json_schema", "temperature"]
        for completion in answered
    )
    # Two requests are refused, and a probe for each.
    assert len(server.bodies) == 44


async def test_another_model_is_asked_with_everything() -> None:
    async with (
        scripted_server(fussy) as server,
        generation_service(providers={"p": {"base_url": server.base_url, "default_model": "m"}}) as service,
    ):
        for text, model in enumerate(("a", "a", "b")):
            await service.generate(str(text), model=model, sampling=TEMPERATURE, json_format=False)
    assert [("temperature" in body, body["model"]) for body in server.bodies] == [
        (True, "a"),
        (True, "a"),  # the probe
        (False, "a"),
        (False, "a"),
        (True, "b"),
        (True, "b"),
        (False, "b"),
    ]


async def test_what_was_learnt_is_forgotten_after_a_while() -> None:
    table = {"default_model": "m", "remember_seconds": 0.0}
    async with (
        scripted_server(fussy) as server,
        generation_service(providers={"p": {"base_url": server.base_url, **table}}) as service,
    ):
        for number in range(2):
            await service.generate(str(number), sampling=TEMPERATURE, json_format=False)
    assert ["temperature" in body for body in server.bodies] == [True, False, True, False]


async def test_a_refusal_of_one_schema_holds_for_that_schema() -> None:
    def narrow(body: Body) -> Reply:
        form = body.get("response_format") or {}
        if form.get("type") == "json_schema" and form["json_schema"]["name"] == "odd":
            return Reply(error("Invalid schema for response_format 'odd'"), 400)
        return Reply(message('{"a":1}'))

    schema = '{"type":"object"}'
    async with (
        scripted_server(narrow) as server,
        generation_service(providers={"p": {"base_url": server.base_url, "default_model": "m"}}) as service,
    ):
        for name in ("odd", "even"):
            form = pb.JsonFormat(name=name, schema=schema)
            asked = [pb.Message(role=pb.MESSAGE_ROLE_USER, text=name)]
            await service.generation.Generate(
                pb.GenerateRequest(messages=asked, json_format=form), timeout=10
            )
    assert [body["response_format"]["type"] for body in server.bodies] == [
        "json_schema",
        "json_schema",  # the probe
        "json_object",
        "json_schema",
    ]


def quoting(body: Body) -> Reply:
    """Refuses some questions, and quotes them."""
    question = body["messages"][-1]["content"]
    return Reply(error(f"invalid: {question}"), 400) if "odd" in question else Reply(message(GOOD))


@pytest.mark.parametrize(
    ("planted", "member"),
    [
        ("response_format is not supported", "response_format"),
        ("max_tokens must be at most 16", "max_tokens"),
        ("temperature is not supported", "temperature"),
        ("this model only supports streaming", "stream"),
    ],
)
async def test_what_a_refusal_quotes_changes_no_other_call(planted: str, member: str) -> None:
    sampling = Sampling(temperature=0.0, max_output_tokens=500)
    async with (
        scripted_server(quoting) as server,
        generation_service(providers={"p": {"base_url": server.base_url, "default_model": "m"}}) as service,
    ):
        with on_behalf_of("team-b"):
            await service.generate("before", sampling=sampling)
        for number in range(2):
            with on_behalf_of("team-a"), suppress(grpc.aio.AioRpcError):
                await service.generate(f"odd {number}: {planted}", sampling=sampling)
        with on_behalf_of("team-b"):
            await service.generate("after", sampling=sampling)
    before, after = server.bodies[0], server.bodies[-1]
    assert before.get(member) == after.get(member)
    probes = [body for body in server.bodies[1:-1] if "odd" not in body["messages"][-1]["content"]]
    # A schema, and then any JSON. A model that takes what is probed is not asked again.
    assert len(probes) == (2 if member == "response_format" else 1)


async def test_a_probe_holds_nothing_of_the_request_and_counts_if_it_is_answered() -> None:
    secret = Sampling(temperature=0.123, top_p=0.456, seed=78901, stop=["the secret"], max_output_tokens=777)

    def unlike(body: Body) -> Reply:
        return (
            Reply(error("temperature must be 0"), 400) if body.get("temperature") else Reply(message("fine"))
        )

    async with (
        scripted_server(unlike) as server,
        generation_service(providers={"p": {"base_url": server.base_url, "default_model": "m"}}) as service,
    ):
        completion = await service.generate("the secret", sampling=secret, json_format=False)
    refused, probe, reduced = server.bodies
    assert refused.keys() == probe.keys()
    assert "temperature" not in reduced
    assert not {"the secret", "0.123", "0.456", "78901", "777"} & set(re.findall(r"[\w. ]+", str(probe)))
    assert completion.usage.retried_call_count == 1
    assert list(completion.calls[0].omitted_parameters) == ["temperature"]


async def test_a_slow_first_answer_does_not_hold_the_others_back() -> None:
    begun = asyncio.Event()

    def slow(body: Body) -> Reply:
        if body["messages"][-1]["content"] == "first":
            begun.set()
            return Reply(events=[20.0])
        return Reply(message("fine"))

    async with (
        scripted_server(slow) as server,
        generation_service(providers={"p": {"base_url": server.base_url, "default_model": "m"}}) as service,
    ):
        first = asyncio.create_task(service.generate("first", json_format=False))
        await begun.wait()
        second = await service.generate("second", json_format=False, timeout=5)
        first.cancel()
    assert second.text == "fine"


async def test_a_truncated_answer_is_requested_with_more_than_the_reasoning_took() -> None:
    def starving(body: Body) -> Reply:
        cap = body.get("max_tokens") or 2
        if cap < 3000:
            counts = {"prompt_tokens": 3, "completion_tokens": 2000}
            counts["completion_tokens_details"] = {"reasoning_tokens": 2000}  # type: ignore[assignment]
            return Reply(message("", finish="length", usage=counts))
        return Reply(message("fine"))

    async with (
        scripted_server(starving) as server,
        generation_service(providers={"p": {"base_url": server.base_url, "default_model": "m"}}) as service,
    ):
        completion = await service.generate(json_format=False, sampling=Sampling(max_output_tokens=2))
        without_cap = await service.generate("again", json_format=False)
    assert (completion.text, without_cap.text) == ("fine", "fine")
    assert [body.get("max_tokens") for body in server.bodies] == [2, 4000, None, 8192]
