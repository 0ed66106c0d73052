"""The OpenAI chat-completions protocol: calls to request bodies, response bodies to answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from pydantic_core import to_json

from services.generation.answers.forms import JsonForm
from services.generation.calls import (
    Alternative,
    Answer,
    Call,
    FinishReason,
    Message,
    Role,
    Token,
    TokenCounts,
)

TokenCapName = Literal["max_tokens", "max_completion_tokens"]

_REFUSALS = {"content_filter"}


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
    sampling, messages = call.sampling, call.messages
    options = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        token_cap: sampling.max_output_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "logprobs": call.logprobs or None,
        "top_logprobs": call.top_logprobs or None,
    }
    if call.json_form is not None and structured is not StructuredOutput.JSON_SCHEMA:
        messages = _with_schema(messages, call.json_form)
    return b'{"model":%b,"messages":[%b]%b%b}' % (
        to_json(call.model),
        b",".join([b'{"role":"%b","content":%b}' % (said.role.encode(), said.quoted) for said in messages]),
        b"".join(
            [
                b',"%b":%b' % (name.encode(), to_json(value))
                for name, value in options.items()
                if value is not None
            ]
        ),
        b"" if call.json_form is None else _response_format(call.json_form, structured),
    )


@lru_cache(maxsize=256)
def _response_format(form: JsonForm, structured: StructuredOutput) -> bytes:
    """The last member of the body, with the comma before it: the same for every call of a form."""
    if structured is StructuredOutput.NONE:
        return b""
    if structured is StructuredOutput.JSON_OBJECT:
        return b',"response_format":{"type":"json_object"}'
    name, schema, strict = to_json(form.name), form.text.encode(), to_json(form.is_strict)
    described = b'{"name":%b,"schema":%b,"strict":%b}' % (name, schema, strict)
    return b',"response_format":{"type":"json_schema","json_schema":%b}' % described


def _with_schema(messages: tuple[Message, ...], form: JsonForm) -> tuple[Message, ...]:
    """Tells the model the schema that the endpoint does not enforce, with the other instructions."""
    told = f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{form.text}"
    if messages[0].role is Role.SYSTEM:
        return Message(Role.SYSTEM, f"{messages[0].text}\n\n{told}"), *messages[1:]
    return Message(Role.SYSTEM, told), *messages


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
