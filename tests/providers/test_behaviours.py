"""Everything that providers are known to answer, and what becomes of it. One row a behaviour."""

# ruff: noqa: E501 - one row a behaviour

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.common.v1.judging_pb2 import Sampling
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.errors import from_rpc_error
from tests.providers.scripted_server import Reply, Script, error, message, scripted_server
from tests.support.generation import GOOD, WITHOUT_WAITS, Service, generation_service, request
from tests.support.openai_server import Body

OK = pb.COMPLETION_STATUS_OK


@dataclass(frozen=True)
class Behaviour:
    """A provider's behaviour, the request that meets it, and the outcome."""

    name: str
    script: Script
    fields: dict[str, Any] = field(default_factory=dict)
    """Of the request."""
    json: bool = False
    status: int = OK
    text: str | None = None
    omitted: tuple[str, ...] = ()
    reasoning: str = ""
    note: str = ""
    detail: str = ""
    posts: int = 1
    """How many requests the provider gets."""
    error: int = 0
    """The reason of the error. 0: there is none."""
    words: str = ""
    """What the error says."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the provider."""
    completion_tokens: int | None = None
    unmetered: int = 0


def always(payload: Any, status: int = 200, **members: Any) -> Script:
    return lambda _: Reply(payload, status, **members)


def refuses(member: str, said: str, status: int = 400, **members: Any) -> Script:
    """Refuses bodies with a member; a dotted one names a member of it."""

    def script(body: Body) -> Reply:
        value: Any = body
        for part in member.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return Reply(message("fine")) if value is None else Reply(error(said, **members), status)

    return script


def in_turn(*payloads: Any) -> Callable[[], Script]:
    def make() -> Script:
        left = list(payloads)
        return lambda _: Reply(left.pop(0) if len(left) > 1 else left[0])

    return make


def without_format(kind: str, said: str, status: int = 400) -> Script:
    def script(body: Body) -> Reply:
        if (body.get("response_format") or {}).get("type") in kind.split("|"):
            return Reply(error(said), status)
        return Reply(message(GOOD))

    return script


def without_system(said: str, status: int = 400) -> Script:
    def script(body: Body) -> Reply:
        roles = [one["role"] for one in body["messages"]]
        return (
            Reply(error(said), status)
            if "system" in roles
            else Reply(message(body["messages"][0]["content"]))
        )

    return script


def usage(**counts: Any) -> Script:
    return always(message("fine", usage=counts))


def delta(**members: Any) -> Body:
    return {"model": "m-1", "choices": [{"index": 0, "delta": members, "finish_reason": None}]}


def end(reason: str = "stop") -> Body:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


COUNTED = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}
SYSTEM = {
    "messages": [
        pb.Message(role=pb.MESSAGE_ROLE_SYSTEM, text="Be brief."),
        pb.Message(role=pb.MESSAGE_ROLE_USER, text="Go."),
    ]
}


def sampled(**members: Any) -> dict[str, Any]:
    return {"sampling": Sampling(**members)}


EVERY_REFUSAL_AT_ONCE = {
    "temperature": "Unsupported value: 'temperature' does not support 0.0 with this model.",
    "top_p": "Unsupported parameter: 'top_p' is not supported with this model.",
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model.",
    "seed": "seed: Extra inputs are not permitted",
    "logprobs": "You are not allowed to request logprobs from this model.",
}


def picky(body: Body) -> Reply:
    for member, said in EVERY_REFUSAL_AT_ONCE.items():
        if member in body:
            return Reply(error(said), 400)
    return Reply(message("fine"))


def channels(text: str) -> str:
    return f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{text}<|return|>"


BEHAVIOURS = [
    # Parameters that are refused.
    Behaviour("nothing-asked-nothing-sent", always(message("fine")), text="fine"),
    Behaviour("temperature-400", refuses("temperature",
        "Unsupported value: 'temperature' does not support 0.0 with this model.", param="temperature"),
        sampled(temperature=0.0), omitted=("temperature",), posts=2),
    Behaviour("temperature-422", refuses("temperature", "`temperature` must be strictly positive", 422),
        sampled(temperature=0.0), omitted=("temperature",), posts=2),
    Behaviour("top-p-400", refuses("top_p",
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one."),
        sampled(temperature=0.5, top_p=0.9), omitted=("top_p",), posts=2),
    Behaviour("seed-422", refuses("seed", "seed: Extra inputs are not permitted", 422), sampled(seed=3),
        omitted=("seed",), posts=2),
    Behaviour("stop-400-is-cut-here", lambda body: (Reply(error("Unsupported parameter: 'stop'"), 400)
        if "stop" in body else Reply(message("one END two"))), sampled(stop=["END"]), text="one ",
        omitted=("stop",), posts=2),
    Behaviour("max-tokens-renamed",
        refuses("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        sampled(max_output_tokens=50), posts=2),
    Behaviour("max-completion-tokens-renamed",
        refuses("max_completion_tokens", "max_completion_tokens: Extra inputs are not permitted", 422),
        sampled(max_output_tokens=50), posts=2, settings={"token_parameter": "max_completion_tokens"}),
    Behaviour("max-tokens-too-large", lambda body: (Reply(error(
        "max_tokens is too large: this model supports at most 4096 completion tokens"), 400)
        if body["max_tokens"] > 4096 else Reply(message("fine"))), sampled(max_output_tokens=9000), posts=2),
    Behaviour("logprobs-403",
        refuses("logprobs", "You are not allowed to request logprobs from this model.", 403),
        {"logprobs": True, "top_logprobs": 3}, omitted=("logprobs",), posts=2),
    Behaviour("top-logprobs-400", refuses("top_logprobs", "top_logprobs is not supported"),
        {"logprobs": True, "top_logprobs": 3}, omitted=("top_logprobs",), posts=2),
    Behaviour("reasoning-effort-400",
        refuses("reasoning_effort", "Unrecognized request argument supplied: reasoning_effort"),
        sampled(reasoning_effort="low"), omitted=("reasoning_effort",), posts=2),
    Behaviour("schema-400", without_format("json_schema",
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported"), json=True,
        omitted=("json_schema",), posts=2),
    Behaviour("schema-500-llama-cpp-python", without_format("json_schema",
        "{'loc': ('body', 'response_format', 'type'), 'msg': 'Input should be'}", 500), json=True,
        omitted=("json_schema",), posts=2),
    Behaviour("schema-xgrammar", without_format("json_schema",
        "The provided JSON schema contains features not supported by xgrammar."), json=True,
        omitted=("json_schema",), posts=2),
    Behaviour("object-400", without_format("json_schema|json_object", "response_format is not supported"),
        json=True, omitted=("json_object", "json_schema"), posts=3),
    Behaviour("openrouter-404-unnamed",
        without_format("json_schema", "No endpoints found that can handle the requested parameters.", 404),
        json=True, omitted=("json_schema",), posts=2),
    Behaviour("system-role-400", without_system("System role not supported"), SYSTEM, text="Be brief.\n\nGo.",
        omitted=("system_role",), posts=2),
    Behaviour("roles-must-alternate-500",
        without_system("Conversation roles must alternate user/assistant/user/assistant/...", 500), SYSTEM,
        text="Be brief.\n\nGo.", omitted=("system_role",), posts=2),
    Behaviour("many-refusals-one-by-one", picky,
        {**sampled(temperature=0.0, top_p=0.9, seed=1, max_output_tokens=9), "logprobs": True},
        omitted=("logprobs", "seed", "temperature", "top_p"), posts=6),
    Behaviour("refusal-in-http-200", lambda body: (Reply(error("temperature is not supported", code=400))
        if "temperature" in body else Reply(message("fine"))), sampled(temperature=0.0),
        omitted=("temperature",), posts=2),
    Behaviour("streams-only", lambda body: (Reply(events=[delta(content="fine"), end(), COUNTED, "[DONE]"])
        if body.get("stream") else Reply(error(
        "This model only support stream mode, please enable the stream parameter"), 400)), text="fine",
        posts=2),
    # Settings.
    Behaviour("omitted-by-settings", always(message("fine")), sampled(temperature=0.0),
        omitted=("temperature",), settings={"omit": ["temperature"]}),
    Behaviour("capped-by-settings", always(message("fine")), sampled(max_output_tokens=900),
        settings={"max_output_tokens_limit": 100}),
    # Reasoning.
    Behaviour("think-tags", always(message("<think>Hm.</think>\n\nfine")), text="fine", reasoning="Hm."),
    Behaviour("think-end-only", always(message("Hm.</think>fine")), text="fine", reasoning="Hm."),
    Behaviour("bracket-think", always(message("[THINK]Hm.[/THINK]fine")), text="fine", reasoning="Hm."),
    Behaviour("harmony-channels", always(message(channels("fine"))), text="fine", reasoning="Hm."),
    Behaviour("harmony-json", always(message(channels(GOOD))), json=True, text=GOOD, reasoning="Hm."),
    Behaviour("reasoning-content", always(message("fine", reasoning_content="Hm.")), text="fine",
        reasoning="Hm."),
    Behaviour("reasoning-member", always(message("fine", reasoning="Hm.")), text="fine", reasoning="Hm."),
    Behaviour("thinking-parts", always(message([{"type": "thinking",
        "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "fine"}])), text="fine",
        reasoning="Hm."),
    Behaviour("reasoning-and-no-answer", always(message(None, reasoning_content="Hm.")),
        status=pb.COMPLETION_STATUS_EMPTY, text="", reasoning="Hm.", detail="reasoning and no answer",
        posts=2),
    Behaviour("unfinished-thinking", always(message("<think>Option 2 perhaps")),
        status=pb.COMPLETION_STATUS_TRUNCATED, text="", reasoning="Option 2 perhaps", posts=2),
    Behaviour("draft-in-unfinished-thinking", always(message(f"<think>maybe {GOOD}")), json=True,
        status=pb.COMPLETION_STATUS_TRUNCATED, text="", reasoning=f"maybe {GOOD}", posts=2),
    Behaviour("cap-starved-by-reasoning", always(message("", finish="length", usage={"prompt_tokens": 9,
        "completion_tokens": 64, "completion_tokens_details": {"reasoning_tokens": 64}})),
        sampled(max_output_tokens=64), status=pb.COMPLETION_STATUS_TRUNCATED, text="",
        detail="reasoning used up the token cap", posts=2, completion_tokens=128),
    # Ends that are no answer.
    Behaviour("upper-case-stop", always(message("fine", finish="STOP")), text="fine"),
    Behaviour("no-finish-reason", always(message("fine", finish=None)), text="fine"),
    Behaviour("end-turn", always(message("fine", finish="end_turn")), text="fine"),
    Behaviour("max-tokens-upper", always(message("fi", finish="MAX_TOKENS")),
        status=pb.COMPLETION_STATUS_TRUNCATED, text="fi", posts=2),
    Behaviour("unknown-finish", always(message("fine", finish="gremlins")),
        status=pb.COMPLETION_STATUS_INTERRUPTED, detail="gremlins"),
    Behaviour("safety-empty", always(message("", finish="SAFETY")), status=pb.COMPLETION_STATUS_FILTERED,
        detail="SAFETY"),
    Behaviour("content-filter", always(message("half", finish="content_filter")),
        status=pb.COMPLETION_STATUS_FILTERED),
    Behaviour("refusal-member", always(message(None, refusal="No.")), status=pb.COMPLETION_STATUS_REFUSED,
        text="No."),
    Behaviour("tool-call", always(message(None, finish="tool_calls",
        tool_calls=[{"function": {"name": "search", "arguments": "{}"}}])),
        status=pb.COMPLETION_STATUS_TOOL_CALL, detail="'search'"),
    Behaviour("malformed-function-call", always(message("", finish="MALFORMED_FUNCTION_CALL")),
        status=pb.COMPLETION_STATUS_TOOL_CALL),
    Behaviour("prompt-blocked-without-choices",
        always({"choices": [], "promptFeedback": {"blockReason": "SAFETY"}}),
        status=pb.COMPLETION_STATUS_FILTERED, detail="SAFETY", unmetered=1),
    Behaviour("content-policy-400", always(error(
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        code="content_filter"), 400), status=pb.COMPLETION_STATUS_FILTERED,
        detail="content management policy", unmetered=1),
    # Errors.
    Behaviour("finish-error", always(message("half", finish="error")),
        error=reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, posts=2, words="'error'"),
    Behaviour("error-in-http-200", always({"error": {"message": "Upstream is overloaded", "code": 502}}),
        error=reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, posts=2, words="Upstream is overloaded"),
    Behaviour("permanent-error-in-http-200",
        always({"error": {"message": "Bad things about this request", "code": 400}}),
        error=reasons.ERROR_REASON_PROVIDER_REJECTED, words="Bad things"),
    Behaviour("error-in-choice", always({"choices": [{"error": {"code": 502, "message": "cut by X"},
        "finish_reason": "error", "message": {"content": ""}}]}),
        error=reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, posts=2, words="cut by X"),
    Behaviour("context-length", always(error(
        "This model's maximum context length is 10 tokens. However, your messages resulted in 20 tokens.",
        code="context_length_exceeded"), 400), error=reasons.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED,
        words="maximum context length"),
    Behaviour("prompt-too-long", always(error("prompt is too long: 210000 tokens > 200000 maximum"), 400),
        error=reasons.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED),
    Behaviour("context-500-llama-cpp",
        always(error("the request exceeds the available context size, try increasing it", code=500), 500),
        error=reasons.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED),
    Behaviour("model-not-found-404", always(error(
        "The model `m` does not exist or you do not have access to it.", code="model_not_found"), 404),
        error=reasons.ERROR_REASON_MODEL_UNKNOWN, words="does not exist"),
    Behaviour("model-invalid-400", always(error("m is not a valid model ID", code=400), 400),
        error=reasons.ERROR_REASON_MODEL_UNKNOWN),
    Behaviour("ollama-model-404",
        always({"error": {"message": 'model "m" not found, try pulling it first', "type": "api_error"}}, 404),
        error=reasons.ERROR_REASON_MODEL_UNKNOWN),
    Behaviour("bad-key-401", always(error("Incorrect API key provided: sk-ab***yz."), 401),
        error=reasons.ERROR_REASON_PROVIDER_UNAUTHENTICATED, words="Incorrect API key"),
    Behaviour("gemini-bad-key-400",
        always([{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}], 400),
        error=reasons.ERROR_REASON_PROVIDER_UNAUTHENTICATED),
    Behaviour("missing-v1", always(b"404: Not Found", 404, headers={"Content-Type": "text/plain"}),
        error=reasons.ERROR_REASON_PROVIDER_ADDRESS_INVALID),
    Behaviour("missing-v1-fastapi", always({"detail": "Not Found"}, 404),
        error=reasons.ERROR_REASON_PROVIDER_ADDRESS_INVALID),
    Behaviour("insufficient-quota",
        always(error("You exceeded your current quota.", code="insufficient_quota"), 429),
        error=reasons.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED),
    Behaviour("payment-required", always(error("This request requires more credits", code=402), 402),
        error=reasons.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED),
    Behaviour("redirect-to-another-host",
        always(None, 307, headers={"Location": "http://elsewhere.invalid/v1/chat/completions"}),
        error=reasons.ERROR_REASON_PROVIDER_ADDRESS_INVALID, words="elsewhere.invalid"),
    Behaviour("lm-studio-plain-error", always({"error": "Model is unloaded."}, 400),
        error=reasons.ERROR_REASON_PROVIDER_REJECTED, words="unloaded"),
    # Side data.
    Behaviour("no-usage", usage(), text="fine", unmetered=1),
    Behaviour("cached-above-prompt",
        usage(prompt_tokens=5, completion_tokens=2, prompt_tokens_details={"cached_tokens": 9}),
        note="cached tokens unknown", completion_tokens=2),
    Behaviour("negative-counts", usage(prompt_tokens=-1, completion_tokens=2), note="token counts unknown",
        unmetered=1),
    Behaviour("textual-counts", usage(prompt_tokens="5", completion_tokens="2"), completion_tokens=2),
    Behaviour("words-for-counts", usage(prompt_tokens="many", completion_tokens="few"),
        note="token counts unknown", unmetered=1),
    Behaviour("usage-is-a-list", always({**message("fine"), "usage": [1]}), unmetered=1),
    Behaviour("thinking-left-out-of-the-count",
        usage(prompt_tokens=10, completion_tokens=5, total_tokens=215), completion_tokens=205),
    Behaviour("odd-logprobs", always({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop",
        "logprobs": {"content": [{"token": "fine"}]}}]}), {"logprobs": True},
        note="log-probabilities unknown", unmetered=1),
    Behaviour("logprobs-of-another-form",
        always({"choices": [{"message": {"content": "fine"}, "logprobs": [1]}]}), {"logprobs": True},
        unmetered=1),
    # Streams.
    Behaviour("stream", lambda body: Reply(events=[delta(role="assistant"), delta(content="fi"),
        delta(content="ne"), end(), COUNTED, "[DONE]"]), text="fine", settings={"stream": True},
        completion_tokens=3),
    Behaviour("stream-with-reasoning",
        lambda body: Reply(events=[delta(reasoning_content="Hm."), delta(content="fine"), end(), "[DONE]"]),
        text="fine", reasoning="Hm.", settings={"stream": True}, unmetered=1),
    Behaviour("stream-options-refused",
        lambda body: (Reply(error("stream_options: Extra inputs are not permitted"), 422)
        if "stream_options" in body else Reply(events=[delta(content="fine"), end(), "[DONE]"])), text="fine",
        posts=2, settings={"stream": True}, unmetered=1),
    Behaviour("stream-answered-at-once", always(message("fine")), text="fine", settings={"stream": True}),
    Behaviour("stream-with-error",
        lambda body: Reply(events=[delta(content="fi"), {"error": {"message": "engine died", "code": 500}}]),
        error=reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, words="engine died", posts=2,
        settings={"stream": True}),
    Behaviour("stream-cut", lambda body: Reply(events=[delta(content="fi")]),
        error=reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, words="ended before the answer", posts=2,
        settings={"stream": True}),
    Behaviour("stream-stalls", lambda body: Reply(events=[delta(content="fi"), 5.0]),
        error=reasons.ERROR_REASON_PROVIDER_UNAVAILABLE, posts=2,
        settings={"stream": True, "stream_idle_seconds": 0.1}),
]  # fmt: skip


def provider(base_url: str, **settings: Any) -> dict[str, Any]:
    retries = {**WITHOUT_WAITS, "transient_attempts": 2}
    return {"base_url": base_url, "default_model": "m", "retries": retries, **settings}


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.name)
async def test_a_behaviour_has_its_outcome(behaviour: Behaviour) -> None:
    settings = {"remember_seconds": 0, **behaviour.settings}
    async with (
        scripted_server(behaviour.script) as server,
        generation_service(providers={"p": provider(server.base_url, **settings)}) as service,
    ):
        if behaviour.error:
            raised = await _error(service, behaviour)
            assert raised.reason == behaviour.error
            assert behaviour.words in raised.message
        else:
            _check(behaviour, await _complete(service, behaviour))
        assert len(server.bodies) == behaviour.posts


REFUSED = [behaviour for behaviour in BEHAVIOURS if behaviour.omitted and not behaviour.error]


@pytest.mark.parametrize("behaviour", REFUSED, ids=lambda behaviour: behaviour.name)
async def test_a_parameter_that_is_refused_in_every_call_is_not_sent_again(behaviour: Behaviour) -> None:
    async with (
        scripted_server(behaviour.script) as server,
        generation_service(providers={"p": provider(server.base_url, **behaviour.settings)}) as service,
    ):
        first = await _complete(service, behaviour)
        # Each refused request is followed by a probe, which is refused like it.
        assert len(server.bodies) == 2 * behaviour.posts - 1
        server.forget()
        again = await _complete(service, replace(behaviour, fields={**behaviour.fields, "repeat_index": 1}))
        assert len(server.bodies) == 1
    assert first.usage.retried_call_count == 0
    assert again.calls[0].omitted_parameters == first.calls[0].omitted_parameters


async def _complete(service: Service, behaviour: Behaviour) -> pb.Completion:
    fields = {name: value for name, value in behaviour.fields.items() if name != "messages"}
    made = request("Is it good?", json_format=behaviour.json, **fields)
    if "messages" in behaviour.fields:
        del made.messages[:]
        made.messages.extend(behaviour.fields["messages"])
    return (await service.generation.Generate(made, timeout=20)).completion


async def _error(service: Service, behaviour: Behaviour) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await _complete(service, behaviour)
    return from_rpc_error(raised.value)


def _check(behaviour: Behaviour, completion: pb.Completion) -> None:
    call = completion.calls[-1]
    assert completion.status == behaviour.status
    assert behaviour.text is None or completion.text == behaviour.text
    assert completion.reasoning == behaviour.reasoning
    assert tuple(call.omitted_parameters) == behaviour.omitted
    assert behaviour.detail in completion.status_detail
    assert behaviour.note in " ".join(call.notes)
    assert bool(call.notes) == bool(behaviour.note)
    assert completion.usage.unmetered_call_count == behaviour.unmetered
    if behaviour.completion_tokens is not None:
        assert completion.usage.completion_token_count == behaviour.completion_tokens
