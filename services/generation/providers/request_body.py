"""Calls as request bodies of the OpenAI chat-completions protocol."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic_core import to_json

from services.generation.answers.forms import JsonForm
from services.generation.calls import Call, Message, Role
from services.generation.providers.parameters import Dialect, Parameter


def request_body(call: Call, dialect: Dialect) -> bytes:
    """The JSON body of the request for ``call``. Nothing is sent that the call does not ask for."""
    sampling, omit, messages = call.sampling, dialect.omit, call.messages
    alternatives = min(call.top_logprobs, dialect.most_top_logprobs or call.top_logprobs)
    options: dict[str, Any] = {}
    if sampling.temperature is not None and Parameter.TEMPERATURE not in omit:
        options["temperature"] = sampling.temperature
    if sampling.top_p is not None and Parameter.TOP_P not in omit:
        options["top_p"] = sampling.top_p
    cap = dialect.output_tokens(call)
    if cap is not None:
        options[dialect.token_parameter] = cap
    if sampling.seed is not None and Parameter.SEED not in omit:
        options["seed"] = sampling.seed
    if sampling.stop and Parameter.STOP not in omit:
        options["stop"] = list(sampling.stop)
    effort = sampling.reasoning_effort or dialect.reasoning_effort
    if effort and Parameter.REASONING_EFFORT not in omit:
        options["reasoning_effort"] = effort
    if call.logprobs and Parameter.LOGPROBS not in omit:
        options["logprobs"] = True
        if alternatives and Parameter.TOP_LOGPROBS not in omit:
            options["top_logprobs"] = alternatives
    if dialect.stream:
        options["stream"] = True
        if Parameter.STREAM_OPTIONS not in omit:
            options["stream_options"] = {"include_usage": True}
    options.update(dialect.extra_body)
    form, form_sent = call.json_form, b""
    if form is not None:
        if Parameter.JSON_SCHEMA in omit:
            messages = _with_schema(messages, form)
        if "response_format" not in dialect.extra_body:
            form_sent = _response_format(form, Parameter.JSON_SCHEMA in omit, Parameter.JSON_OBJECT in omit)
    if Parameter.SYSTEM_ROLE in omit:
        messages = _without_system(messages)
    return b'{"model":%b,"messages":[%b]%b%b}' % (
        to_json(call.model),
        b",".join([b'{"role":"%b","content":%b}' % (said.role.encode(), said.quoted) for said in messages]),
        b"".join(
            [
                b",%b:%b" % (to_json(name), to_json(value))
                for name, value in options.items()
                if value is not None
            ]
        ),
        form_sent,
    )


@lru_cache(maxsize=256)
def _response_format(form: JsonForm, without_schema: bool, without_object: bool) -> bytes:
    """The last member of the body, with the comma before it: the same for every call of a form."""
    if without_schema:
        return b"" if without_object else b',"response_format":{"type":"json_object"}'
    name, schema, strict = to_json(form.name), form.text.encode(), to_json(form.is_strict)
    described = b'{"name":%b,"schema":%b,"strict":%b}' % (name, schema, strict)
    return b',"response_format":{"type":"json_schema","json_schema":%b}' % described


def _with_schema(messages: tuple[Message, ...], form: JsonForm) -> tuple[Message, ...]:
    """Tells the model the schema that the endpoint does not enforce, with the other instructions."""
    told = f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{form.text}"
    if messages[0].role is Role.SYSTEM:
        return Message(Role.SYSTEM, f"{messages[0].text}\n\n{told}"), *messages[1:]
    return Message(Role.SYSTEM, told), *messages


def _without_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The instructions at the start of the user's next message; neighbours of one role are one message."""
    merged: list[Message] = []
    for said in messages:
        role = Role.USER if said.role is Role.SYSTEM else said.role
        if merged and merged[-1].role is role:
            merged[-1] = Message(role, f"{merged[-1].text}\n\n{said.text}")
        else:
            merged.append(Message(role, said.text))
    return tuple(merged)
