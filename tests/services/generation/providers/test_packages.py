"""Every kind of provider against an imitation of its API: what a call means is the same for all."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dramaturg.service.settings import SettingsError
from services.generation.answers.forms import JsonForm
from services.generation.calls import (
    Answer,
    Call,
    FailureKind,
    FinishReason,
    Image,
    Message,
    ProviderError,
    Role,
    Sampling,
    Until,
)
from services.generation.providers.base import Provider
from services.generation.providers.factory import open_providers
from tests.support.api_imitations import (
    IMITATIONS,
    KEY,
    Asked,
    Fault,
    ImitationServer,
    Raw,
    Said,
    Script,
    imitate,
    keywords,
)
from tests.support.generation import generation_settings
from tests.support.ports import free_port

KINDS = tuple(IMITATIONS)
FORM = JsonForm(
    "verdict",
    '{"type":"object","properties":{"met":{"type":"boolean"}},"required":["met"],"additionalProperties":false}',
)
BOUNDED = JsonForm(
    "verdict",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "reason": {"type": "string", "maxLength": 600},
                "steps": {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 1, "maximum": 9},
                    "maxItems": 20,
                },
            },
            "required": ["reason", "steps"],
            "additionalProperties": False,
        }
    ),
    '{"type": "object"}',
)
BOUNDS = frozenset({"maxLength", "minimum", "maximum", "maxItems"})
JSON = '{"met": true}'
PNG = Image(b"\x89PNG\r\n\x1a\n?>", "image/png")
JPEG = Image(b"\xff\xd8\xff\xfe", "image/jpeg")
CALL = Call("m", (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Ready?")))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if importlib.util.find_spec(IMITATIONS[request.param].extra.partition(".")[0]) is None:
        pytest.skip(f"{IMITATIONS[request.param].extra} is not installed")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return str(request.param)


@asynccontextmanager
async def opened(server: ImitationServer, **fields: Any) -> AsyncIterator[Provider]:
    """The provider for a server, as the service opens it for checks: without retries."""
    key = {} if server.imitation.kind == "bedrock" or "api_key_file" in fields else {"api_key_env": "KEY"}
    settings = generation_settings(providers={"p": {**server.settings, **key, **fields}})
    [configured] = open_providers(settings, {"KEY": KEY})
    assert configured.checked is not None
    try:
        yield configured.checked
    finally:
        await configured.provider.close()


async def ask(kind: str, script: Script, call: Call = CALL, **fields: Any) -> tuple[Answer, ImitationServer]:
    async with imitate(kind, script) as server, opened(server, **fields) as provider:
        return await provider.complete(call, Until(20)), server


def sampled(**fields: Any) -> Call:
    return replace(CALL, sampling=Sampling(**fields))


@dataclass(frozen=True)
class Behaviour:
    """What a call and the answers to it lead to."""

    name: str
    script: Script
    expect: Callable[[Answer, list[Asked], frozenset[str]], Any]
    """Whether the answer and the requests are right, for an API that lacks these parameters and keywords."""
    call: Call = field(default_factory=lambda: CALL)


def says(**fields: Any) -> Script:
    return lambda _: Said(**fields)


def refuses(named: Callable[[Asked], Any], message: str, **fields: Any) -> Script:
    """Refuses requests that have a parameter, in the same words."""
    return lambda asked: Fault(400, message) if named(asked) else Said(**fields)


def finishes(reason: FinishReason) -> Callable[[Answer, list[Asked], frozenset[str]], bool]:
    return lambda answer, *_: answer.finish is reason


TOKENS = (("re", -0.25), ("ady", -0.5))
BEHAVIOURS = (
    Behaviour("text", says(), lambda a, *_: (a.text, a.finish) == ("ready", FinishReason.STOP)),
    Behaviour("latency", says(), lambda a, *_: a.latency > 0),
    Behaviour("model", says(), lambda _, asked, __: asked[0].model == "m"),
    Behaviour("instructions", says(), lambda _, asked, __: asked[0].system == "Be brief."),
    Behaviour("message", says(), lambda _, asked, __: asked[0].messages == [("user", "Ready?")]),
    Behaviour("roles", says(),
        lambda _, asked, __: [role for role, _ in asked[0].messages] == ["user", "assistant", "user"],
        replace(CALL, messages=(Message(Role.USER, "One."), Message(Role.ASSISTANT, "Two."),
        Message(Role.USER, "Three.")))),
    Behaviour("images", says(), lambda _, asked, __: (asked[0].images == [("image/png", PNG.data),
        ("image/jpeg", JPEG.data)] and asked[0].messages == [("user", "Alike?And this?")]),
        replace(CALL, messages=(Message(Role.USER, "Alike?", (PNG, "And this?", JPEG)),))),
    Behaviour("nothing that was not asked for", says(), lambda _, asked, __: (asked[0] == replace(asked[0],
        temperature=None, top_p=None, cap=None, stop=None, seed=None, effort=None) and asked[0].schema is None
        and asked[0].logprobs is None and not asked[0].enforces_json)),
    Behaviour("temperature", says(), lambda _, q, __: q[0].temperature == 0, sampled(temperature=0.0)),
    Behaviour("top_p", says(), lambda _, q, __: q[0].top_p == 0.5, sampled(top_p=0.5)),
    Behaviour("cap", says(), lambda _, q, __: q[0].cap == 99, sampled(max_output_tokens=99)),
    Behaviour("stop", says(text="ready END and more"), lambda a, q, lacks: (
        (q[0].stop, a.text, a.omitted) == (None, "ready ", ("stop",)) if "stop" in lacks
        else (q[0].stop, a.omitted) == (["END"], ())), sampled(stop=("END",))),
    Behaviour("seed", says(), lambda a, q, lacks: (q[0].seed, a.omitted) == ((None, ("seed",))
        if "seed" in lacks else (7, ())), sampled(seed=7)),
    Behaviour("effort", says(), lambda a, q, _: q[0].effort == "low", sampled(reasoning_effort="low")),
    Behaviour("schema", says(text=JSON), lambda a, q, _: a.text == JSON and q[0].schema is not None
        and q[0].schema["required"] == ["met"], replace(CALL, json_form=FORM)),
    Behaviour(
        "bounds of a schema",
        says(text='{"reason": "a", "steps": []}'),
        # An API enforces the rest of the schema, and is not asked twice.
        lambda a, q, lacks: (
            len(q) == 1
            and a.omitted == ()
            and q[0].schema is not None
            and keywords(q[0].schema) & BOUNDS == BOUNDS - lacks
            and {"reason", "steps", "required"} <= keywords(q[0].schema)
        ),
        replace(CALL, json_form=BOUNDED),
    ),
    Behaviour("refused bounds", lambda asked: (Fault(400,
        "output_config.format.schema: For 'string' type, property 'maxLength' is not supported")
        if "maxLength" in keywords(asked.schema) else Said(JSON)), lambda a, q, _: a.omitted == ()
        and q[-1].schema is not None and len(q) <= 3, replace(CALL, json_form=BOUNDED)),
    Behaviour("refused schema", lambda asked: (Fault(400,
        "response_format json_schema output_config.format is not supported") if asked.schema else Said(JSON)),
        lambda a, q, _: "json_schema" in a.omitted and q[-1].enforces_json and '"met"' in q[-1].system,
        replace(CALL, json_form=FORM)),
    Behaviour("refused schema and object", lambda asked: (Fault(400,
        "structured outputs are not supported: response_format, tool_choice") if asked.schema
        or asked.enforces_json else Said(JSON)), lambda a, q, _: (a.omitted == ("json_object", "json_schema")
        and not q[-1].enforces_json and '"met"' in q[-1].system), replace(CALL, json_form=FORM)),
    Behaviour("refused temperature",
        refuses(lambda q: q.temperature is not None, "temperature is not supported with this model"),
        lambda a, q, _: a.omitted == ("temperature",) and q[-1].top_p == 0.5,
        sampled(temperature=0.0, top_p=0.5)),
    Behaviour("refused effort",
        refuses(lambda q: q.effort is not None, "reasoning.effort: thinking level is not supported"),
        lambda a, q, _: a.omitted == ("reasoning_effort",) and q[-1].effort is None,
        sampled(reasoning_effort="low")),
    Behaviour("refused cap",
        refuses(lambda q: (q.cap or 0) > 500, "max_tokens is too large: at most 500 output tokens"),
        lambda a, q, _: q[-1].cap == 500 and a.omitted == (), sampled(max_output_tokens=9000)),
    Behaviour("log-probabilities", says(logprobs=TOKENS), lambda a, q, lacks: (
        (a.tokens, set(a.omitted)) == ((), {"logprobs", "top_logprobs"}) if "logprobs" in lacks
        else [(token.text, token.logprob) for token in a.tokens] == list(TOKENS)
        and len(a.tokens[0].alternatives) == 1 and q[0].logprobs == 2),
        replace(CALL, logprobs=True, top_logprobs=2)),
    Behaviour("reasoning", says(thoughts="Let me see."),
        lambda a, *_: (a.text, a.reasoning) == ("ready", "Let me see.")),
    Behaviour("reasoning within the text", says(text="<think>Let me see.</think>ready"),
        lambda a, *_: (a.text, a.reasoning) == ("ready", "Let me see.")),
    Behaviour("counts", says(), lambda a, *_: a.counts and (a.counts.prompt, a.counts.completion) == (10, 4)),
    Behaviour("cached tokens", says(counts=(1000, 900, 4, 0)), lambda a, *_: a.counts
        and (a.counts.prompt, a.counts.cached_prompt) == (1000, 900)),
    Behaviour("no counts", says(counts=None), lambda a, *_: a.counts is None and a.text == "ready"),
    Behaviour("truncation", says(finish="length"), finishes(FinishReason.LENGTH)),
    Behaviour("filter", says(text="", finish="filter"), finishes(FinishReason.FILTER)),
    Behaviour("refusal", says(text="I cannot.", finish="refusal"), lambda a, *_: "I cannot." in a.refusal
        + a.text),
    Behaviour("unknown end", says(finish="other"), finishes(FinishReason.INTERRUPTED)),
    Behaviour("empty", says(text=""), lambda a, *_: (a.text, a.finish) == ("", FinishReason.STOP)),
    Behaviour("a filter that refuses the request",
        lambda _: Fault(400, "blocked by our content policy: content_filter"), finishes(FinishReason.FILTER)),
    Behaviour("the key in an answer", says(text=f"It is {KEY}."), lambda a, *_: KEY not in a.text
        and a.text.startswith("It is ")),
)  # fmt: skip


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda one: one.name)
async def test_an_answer_means_the_same(kind: str, behaviour: Behaviour) -> None:
    if behaviour.name == "the key in an answer" and kind == "bedrock":
        pytest.skip("the secret of AWS signs requests and is never sent")
    answer, server = await ask(kind, behaviour.script, behaviour.call)
    lacks = server.imitation.lacks | server.imitation.refused_keywords
    assert behaviour.expect(answer, server.asked, lacks), (answer, server.bodies)


FAULTS: Mapping[str, tuple[Fault | Raw, FailureKind, bool]] = {
    "a refused key": (Fault(401, "The key is not valid"), FailureKind.UNAUTHENTICATED, True),
    "a model that is not there": (
        Fault(404, "model: m was not found"),
        FailureKind.MODEL_UNKNOWN,
        True,
    ),
    "a model of another API": (
        Fault(400, "This model is only supported in v1/completions"),
        FailureKind.OTHER_API,
        True,
    ),
    "no credit": (
        Fault(400, "Your credit balance is too low to access the API"),
        FailureKind.CREDIT_EXHAUSTED,
        True,
    ),
    "a rate limit": (
        Fault(429, "Too many requests", headers={"retry-after": "7"}),
        FailureKind.RATE_LIMITED,
        True,
    ),
    "an overloaded provider": (Fault(529, "Overloaded", "overloaded_error"), FailureKind.RATE_LIMITED, True),
    "a provider that is down": (Fault(503, "Try later"), FailureKind.TRANSIENT, True),
    "a fault of the provider": (Fault(500, "It broke"), FailureKind.TRANSIENT, True),
    "a gateway that gave up": (Fault(504, "Gateway timeout"), FailureKind.TRANSIENT, False),
    "a prompt that is too long": (
        Fault(400, "prompt is too long: 9 tokens > 8 maximum"),
        FailureKind.CONTEXT_LENGTH,
        True,
    ),
    "another refusal": (Fault(400, "No."), FailureKind.REJECTED, True),
    "no JSON": (Raw(b"<html>", headers={"Content-Type": "application/json"}), FailureKind.TRANSIENT, False),
    "another JSON": (
        Raw(b'{"a": 1}', headers={"Content-Type": "application/json"}),
        FailureKind.TRANSIENT,
        False,
    ),
    "a closed connection": (Raw(b"", 0), FailureKind.TRANSIENT, False),
    "a redirect": (
        Raw(b"", 307, headers={"Location": "http://127.0.0.1:1/elsewhere"}),
        FailureKind.ADDRESS_INVALID,
        True,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failure_means_the_same(kind: str, fault: str) -> None:
    said, expected, settled = FAULTS[fault]
    with pytest.raises(ProviderError) as raised:
        await ask(kind, lambda _: said)
    error = raised.value
    assert error.kind is expected, str(error)
    assert error.settled is settled
    assert KEY not in str(error)
    if isinstance(said, Fault):
        assert said.message in str(error)
        assert error.status == said.status
        assert error.retry_after == (7 if said.headers else None)


async def test_nothing_listens(kind: str) -> None:
    server = ImitationServer(IMITATIONS[kind], says(), f"http://127.0.0.1:{free_port()}")
    async with opened(server) as provider:
        with pytest.raises(ProviderError, match="cannot be reached") as raised:
            await provider.complete(CALL, Until(20))
    assert (raised.value.kind, raised.value.settled) == (FailureKind.TRANSIENT, True)


async def test_a_call_ends_at_its_deadline(kind: str) -> None:
    never = asyncio.Event()
    async with imitate(kind, lambda _: never) as server, opened(server) as provider:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await provider.complete(CALL, Until(20))
        assert time.monotonic() - begun < 5
        if kind == "bedrock":
            # Its thread ends with the response.
            never.set()
        else:
            async with asyncio.timeout(5):
                await server.gone.wait()


_KEY_HEADERS = {"authorization", "x-api-key", "x-goog-api-key"}


async def test_requests_have_the_key_once(kind: str) -> None:
    async with imitate(kind, says()) as server, opened(server) as provider:
        assert list(await provider.models()) == ["another", "m"]
        await provider.complete(CALL, Until(20))
        for headers in server.headers:
            keys = [value for name, value in headers.items() if name.lower() in _KEY_HEADERS]
            assert kind == "bedrock" or [value.removeprefix("Bearer ") for value in keys] == [KEY]
        server.listing = Fault(401, "The key is not valid")
        with pytest.raises(ProviderError) as raised:
            await provider.models()
    assert raised.value.kind is FailureKind.UNAUTHENTICATED


async def test_a_key_file_is_read_again(kind: str, tmp_path: Path) -> None:
    if kind == "bedrock":
        pytest.skip("takes no key")
    file = tmp_path / "key"
    file.write_text("first-key-0001\n")
    async with (
        imitate(kind, says()) as server,
        opened(server, api_key_file=str(file)) as provider,
    ):
        await provider.complete(CALL, Until(20))
        file.write_text("second-key-0002\n")
        await provider.complete(CALL, Until(20))
    sent = [[value for value in headers.values() if "-key-000" in value] for headers in server.headers]
    assert ["first-key-0001" in str(sent[0]), "second-key-0002" in str(sent[1])] == [True, True]
    assert "first" not in str(sent[1])


async def test_what_the_settings_add_is_sent(kind: str) -> None:
    answer, server = await ask(kind, says(), extra_body={"added": {"a": 1}}, max_output_tokens=77)
    added = server.bodies[0].get("additionalModelRequestFields", server.bodies[0])
    assert added["added"] == {"a": 1}
    assert server.asked[0].cap == 77
    assert answer.text == "ready"


@pytest.mark.parametrize("kind", ["openai"], indirect=True)
async def test_the_provider_is_told_to_keep_nothing(kind: str) -> None:
    _, server = await ask(kind, says())
    assert server.bodies[0]["store"] is False


@pytest.mark.parametrize("refused", [False, True])
async def test_the_fixed_part_is_marked_where_the_api_needs_it(kind: str, refused: bool) -> None:
    needs = kind in {"anthropic", "bedrock"}
    answer, server = await ask(
        kind,
        lambda asked: (
            Fault(400, "prompt caching is not supported: cachePoint") if refused and asked.marked else Said()
        ),
    )
    assert server.asked[0].marked is needs
    assert server.asked[-1].marked is (needs and not refused)
    assert answer.omitted == ()


async def test_bounds_that_are_refused_are_left_out_of_that_schema_alone() -> None:
    def script(asked: Asked) -> Said | Fault:
        refused = "600" in json.dumps(asked.schema)
        return Fault(400, "Failed to parse grammar: number of repetitions") if refused else Said("{}")

    another = JsonForm("another", BOUNDED.text.replace("600", "300"), BOUNDED.accepted_text)
    async with imitate("chat", script) as server, opened(server) as provider:
        for form in (BOUNDED, another, BOUNDED):
            await provider.complete(replace(CALL, json_form=form), Until(20))
        # The first call and its probe are refused. What one tenant's schema is refused for changes no other.
        bounded = ["maxLength" in keywords(asked.schema) for asked in server.asked]
        assert bounded == [True, True, False, True, False]
    assert all({"maximum", "maxItems"} <= keywords(asked.schema) for asked in server.asked)


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"], indirect=True)
async def test_the_input_of_the_tool_that_was_sent_is_the_answer(kind: str) -> None:
    answer, server = await ask(
        kind,
        lambda asked: (
            Fault(400, "output_config.format is not supported")
            if asked.schema
            else Said("", tool={"met": True}, finish="tool")
        ),
        replace(CALL, json_form=FORM),
    )
    assert (answer.text, answer.finish) == (JSON, FinishReason.STOP)
    assert server.asked[-1].enforces_json


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"kind": "bedrock", "api_key_env": "KEY"}, "take no key"),
        ({"kind": "google", "project": "p", "api_key_env": "KEY"}, "take no key"),
        ({"kind": "google", "identity": "google"}, "identity of its cloud"),
        ({"kind": "chat", "identity": "azure", "api_key_env": "KEY"}, "exclude each other"),
        ({"kind": "anthropic", "stream": True}, "stream belongs to kind chat"),
        ({"kind": "openai", "project": "p"}, "project belongs"),
        ({"kind": "openai", "region": "r"}, "region belongs"),
        ({"kind": "unheard"}, "chat"),
    ],
)
def test_settings_that_do_not_go_together(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        generation_settings(providers={"p": table})


async def test_a_kind_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("anthropic", "services.generation.providers.messages_api"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(SettingsError, match=r"dramaturg\[anthropic\]"):
        open_providers(generation_settings(providers={"p": {"kind": "anthropic"}}), {})
