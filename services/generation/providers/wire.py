"""The OpenAI chat-completions protocol: calls to request bodies, response bodies to answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

from services.generation.answers.forms import JsonForm
from services.generation.calls import Alternative, Answer, Call, FinishReason, Role, Token, TokenCounts

TokenCapName = Literal["max_tokens", "max_completion_tokens"]

_REFUSALS = {"content_filter"}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class StructuredOutput(StrEnum):
    """How much of the form an endpoint enforces, from the most to the least."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    NONE = "none"

    @property
    def less(self) -> StructuredOutput:
        """The next lower one."""
        rungs = list(StructuredOutput)
        return rungs[min(rungs.index(self) + 1, len(rungs) - 1)]


class MalformedResponseError(ValueError):
    """A response body that does not follow the protocol."""


def request_body(call: Call, structured: StructuredOutput, token_cap: TokenCapName) -> bytes:
    """The JSON body of the request for ``call``; what it leaves open is left out."""
    sampling = call.sampling
    options = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        token_cap: sampling.max_output_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "logprobs": call.logprobs or None,
        "top_logprobs": call.top_logprobs or None,
    }
    messages = [{"role": message.role.value, "content": message.text} for message in call.messages]
    if call.json_form is not None and structured is not StructuredOutput.JSON_SCHEMA:
        messages = _with_schema(messages, call.json_form)
    body = {
        "model": call.model,
        "messages": messages,
        **{name: value for name, value in options.items() if value is not None},
    }
    return (_encode(body)[:-1] + _response_format(call.json_form, structured) + "}").encode()


def _response_format(form: JsonForm | None, structured: StructuredOutput) -> str:
    """The last member of the body as text: so a schema is written as it came, not anew for every call."""
    if form is None or structured is StructuredOutput.NONE:
        return ""
    if structured is StructuredOutput.JSON_OBJECT:
        return ',"response_format":{"type":"json_object"}'
    name, strict = _encode(form.name), _encode(form.is_strict)
    described = f'{{"name":{name},"schema":{form.text},"strict":{strict}}}'
    return f',"response_format":{{"type":"json_schema","json_schema":{described}}}'


def _with_schema(messages: list[dict[str, str]], form: JsonForm) -> list[dict[str, str]]:
    """Tells the model the schema that the endpoint does not enforce, with the other instructions."""
    told = f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{form.text}"
    if messages[0]["role"] == Role.SYSTEM:
        first = {"role": Role.SYSTEM.value, "content": f"{messages[0]['content']}\n\n{told}"}
        return [first, *messages[1:]]
    return [{"role": Role.SYSTEM.value, "content": told}, *messages]


def read_response(body: object, latency: float) -> Answer:
    """Reads the first choice of a response body.

    Raises:
        MalformedResponseError: it does not follow the protocol.
    """
    try:
        return _read_response(body, latency)
    except (TypeError, KeyError, IndexError, ValueError, AttributeError) as error:
        raise MalformedResponseError(f"the response does not follow the protocol: {error!r}") from None


def _read_response(body: Any, latency: float) -> Answer:
    choice = body["choices"][0]
    message = choice["message"]
    refusal = characters(message.get("refusal") or "")
    finish = FinishReason.STOP
    if refusal or choice.get("finish_reason") in _REFUSALS:
        finish = FinishReason.REFUSAL
    elif choice.get("finish_reason") == "length":
        finish = FinishReason.LENGTH
    return Answer(
        text=characters(_content(message.get("content"))),
        finish=finish,
        refusal=refusal,
        model=str(body.get("model") or ""),
        counts=_counts(body.get("usage")),
        tokens=_tokens((choice.get("logprobs") or {}).get("content") or ()),
        latency=latency,
    )


def _content(content: Any) -> str:
    """The text of a message: a string, nothing, or a list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type") == "text")


def _counts(usage: Mapping[str, Any] | None) -> TokenCounts | None:
    if not usage or usage.get("prompt_tokens") is None:
        return None
    prompt = int(usage["prompt_tokens"])
    cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    completion = int(usage.get("completion_tokens") or 0)
    if not 0 <= cached <= prompt or completion < 0:
        raise ValueError(f"token counts {prompt}, {cached}, {completion}")
    return TokenCounts(prompt, completion, cached)


def _tokens(entries: Sequence[Mapping[str, Any]]) -> tuple[Token, ...]:
    return tuple(
        Token(
            characters(entry["token"]),
            _logprob(entry),
            tuple(
                Alternative(characters(other["token"]), _logprob(other))
                for other in sorted(entry.get("top_logprobs") or (), key=_logprob, reverse=True)
            ),
        )
        for entry in entries
    )


def _logprob(entry: Mapping[str, Any]) -> float:
    return min(0.0, float(entry["logprob"]))


def characters(text: str) -> str:
    """Replaces half surrogate pairs, which JSON can carry and no UTF-8 text can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
