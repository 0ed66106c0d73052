"""Which parameter a provider refuses, in the words that providers and servers use."""

# ruff: noqa: E501 - wordings stand as they come

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from services.generation.answers.forms import JsonForm
from services.generation.calls import Call, Message, Role, Sampling
from services.generation.providers.parameters import SCHEMA_BOUNDS, Dialect, Parameter, step_down
from services.generation.providers.refusals import Refusal
from services.generation.providers.transport import Response

EVERYTHING = Call(
    "m",
    (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Is it good?")),
    Sampling(0.0, 0.9, 100_000, 7, ("END",), "minimal"),
    JsonForm("verdict", '{"type":"object","properties":{"met":{"type":"boolean"}},"required":["met"]}'),
    logprobs=True,
    top_logprobs=20,
)


def error(message: str, **members: Any) -> str:
    """An error as OpenAI states it."""
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", **members}})


def litellm(message: str) -> str:
    return json.dumps({"error": {"message": message, "type": None, "param": None, "code": "400"}})


def extra(*location: str | int) -> dict[str, Any]:
    return {"type": "extra_forbidden", "loc": ["body", *location], "msg": "Extra inputs are not permitted"}


WORDINGS: list[tuple[str, int, str, str]] = [
    # OpenAI and Azure OpenAI.
    ("openai-temperature", 400, error(
        "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported.",
        param="temperature", code="unsupported_value"), "temperature"),
    ("openai-temperature-parameter", 400, error(
        "Unsupported parameter: 'temperature' is not supported with this model.", param="temperature",
        code="unsupported_parameter"), "temperature"),
    ("openai-top-p", 400, error("Unsupported parameter: 'top_p' is not supported with this model.",
        param="top_p", code="unsupported_parameter"), "top_p"),
    ("openai-stop", 400,
        error("Unsupported parameter: 'stop' is not supported with this model.", param="stop"), "stop"),
    ("openai-max-tokens", 400, error(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        param="max_tokens", code="unsupported_parameter"), "max_output_tokens"),
    ("openai-max-tokens-too-large", 400, error(
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
        param="max_tokens"), "max_output_tokens"),
    ("openai-logprobs", 403, error("You are not allowed to request logprobs from this model."), "logprobs"),
    ("openai-system-role", 400, error(
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        param="messages[0].role", code="unsupported_value"), "system_role"),
    ("openai-reasoning-effort", 400, error("Unrecognized request argument supplied: reasoning_effort"),
        "reasoning_effort"),
    ("openai-reasoning-effort-value", 400, error(
        "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'low', 'medium', and 'high'.",
        param="reasoning_effort"), "reasoning_effort"),
    ("openai-schema", 400, error(
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        param=None), "json_schema"),
    ("openai-schema-keywords", 400, error(
        "Invalid schema for response_format 'verdict': In context=(), 'additionalProperties' is required to be supplied and to be false.",
        param="response_format"), "json_schema"),
    ("openai-top-logprobs", 400,
        error("Invalid value for 'top_logprobs': must be less than or equal to 5.", param="top_logprobs"),
        "top_logprobs"),
    ("azure-api-version", 400, error(
        "response_format value as json_schema is enabled only for api versions 2024-08-01-preview and later",
        code="BadRequest"), "json_schema"),
    # Anthropic.
    ("anthropic-both", 400, json.dumps({"type": "error", "error": {"type": "invalid_request_error",
        "message": "`temperature` and `top_p` cannot both be specified for this model. Please use only one."}}),
        "top_p"),
    ("anthropic-temperature", 400, error("`temperature` is deprecated for this model."), "temperature"),
    ("anthropic-thinking", 400, error("`temperature` may only be set to 1 when thinking is enabled."),
        "temperature"),
    ("anthropic-max-tokens", 400, error(
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-20250514"),
        "max_output_tokens"),
    ("anthropic-system", 400, error(
        'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not "system" as an input message role.'),
        "system_role"),
    ("anthropic-extra", 400, error("reasoning_effort: Extra inputs are not permitted"), "reasoning_effort"),
    # Gemini.
    ("gemini-seed", 400, json.dumps([{"error": {"code": 400,
        "message": 'Invalid JSON payload received. Unknown name "seed": Cannot find field.',
        "status": "INVALID_ARGUMENT"}}]), "seed"),
    ("gemini-logprobs", 400,
        error("Logprobs is not enabled for models/gemini-2.5-pro", code=400, status="INVALID_ARGUMENT"),
        "logprobs"),
    ("gemma-developer", 400,
        error("Developer instruction is not enabled for models/gemma-3-27b-it", code=400), "system_role"),
    ("gemma-json", 400, error("JSON mode is not enabled for models/gemma-3-27b-it", code=400), "json_object"),
    ("gemini-schema", 400, error(
        "* GenerateContentRequest.generation_config.response_schema.properties: should be non-empty for OBJECT type",
        code=400), "json_schema"),
    ("vertex-max-tokens", 400, error(
        "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 8193 (exclusive). Update the value and try again.",
        code=400), "max_output_tokens"),
    # Mistral.
    ("mistral-seed", 422, json.dumps({"detail": [extra("seed")]}), "seed"),
    ("mistral-max-completion-tokens", 422, json.dumps({"object": "error",
        "message": {"detail": [extra("max_completion_tokens")]}, "type": "invalid_request_error",
        "param": None, "code": None}), "max_output_tokens"),
    ("mistral-logprobs", 422,
        json.dumps({"object": "error", "message": json.dumps({"detail": [extra("logprobs")]})}), "logprobs"),
    # Groq.
    ("groq-reasoning-effort", 400,
        error("property 'reasoning_effort' is unsupported, did you mean 'reasoning_format'?"),
        "reasoning_effort"),
    ("groq-reasoning-effort-value", 400, error("`reasoning_effort` must be one of `none` or `default`"),
        "reasoning_effort"),
    ("groq-logprobs", 400, error("`logprobs` is not supported with this model"), "logprobs"),
    ("groq-schema", 400, error(
        "This model does not support response format `json_schema`. See supported models at https://console.groq.com/docs/structured-outputs#supported-models",
        param="response_format"), "json_schema"),
    ("groq-failed-generation", 400, error(
        "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details.",
        code="json_validate_failed", failed_generation=""), "json_schema"),
    # xAI.
    ("xai-reasoning-effort", 400, json.dumps({"code": "Client specified an invalid argument",
        "error": "Model grok-4-latest does not support parameter reasoningEffort."}), "reasoning_effort"),
    ("xai-stop", 400, json.dumps({"code": "Client specified an invalid argument",
        "error": "Argument not supported on this model: stop"}), "stop"),
    # OpenRouter.
    ("openrouter-unnamed", 404, error(
        "No endpoints found that can handle the requested parameters. To learn more about provider routing, visit: https://openrouter.ai/docs/provider-routing",
        code=404), "json_schema"),
    ("openrouter-upstream", 400, json.dumps({"error": {"message": "Provider returned error", "code": 400,
        "metadata": {"raw": json.dumps({"error": {"message": "top_logprobs is not supported"}}),
        "provider_name": "X"}}}), "top_logprobs"),
    # Amazon Bedrock.
    ("bedrock-extraneous", 400, json.dumps({
        "message": "Malformed input request: #: extraneous key [top_p] is not permitted, please reformat your input and try again."}),
        "top_p"),
    ("bedrock-stop", 400, json.dumps({
        "message": "This model doesn't support the stopSequences field. Remove stopSequences and try again."}),
        "stop"),
    ("bedrock-system", 400, json.dumps({
        "message": "This model doesn't support system messages. Try again without a system message."}),
        "system_role"),
    # vLLM.
    ("vllm-system", 400, json.dumps({"object": "error", "message": "System role not supported",
        "type": "BadRequestError", "code": 400}), "system_role"),
    ("vllm-alternate", 400, error("Conversation roles must alternate user/assistant/user/assistant/... ",
        type="BadRequestError", code=400), "system_role"),
    ("vllm-xgrammar", 400, json.dumps({"object": "error",
        "message": "The provided JSON schema contains features not supported by xgrammar.",
        "type": "BadRequestError", "code": 400}), "json_schema"),
    ("vllm-top-logprobs", 400, error(
        "1 validation error: Value error, Cannot request more than 5 top_logprobs, exceeds max_logprobs",
        type="BadRequestError"), "top_logprobs"),
    # SGLang.
    ("sglang-schema", 400, json.dumps({"object": "error",
        "message": "Structured outputs with grammar backend none is not supported.", "type": "BadRequest",
        "code": 400}), "json_schema"),
    # Text Generation Inference.
    ("tgi-temperature", 422, json.dumps({
        "error": "Input validation error: `temperature` must be strictly positive",
        "error_type": "validation"}), "temperature"),
    ("tgi-top-p", 422, json.dumps({"error": "`top_p` must be > 0.0 and < 1.0", "error_type": "validation"}),
        "top_p"),
    ("tgi-grammar", 422,
        json.dumps({"error": "Input validation error: grammar is not supported", "error_type": "validation"}),
        "json_schema"),
    ("tgi-template", 422,
        json.dumps({"error": "Template error: template error: invalid operation: System role not supported"}),
        "system_role"),
    # Ollama.
    ("ollama-thinking", 400, error('"llama3.2" does not support thinking', type="api_error"),
        "reasoning_effort"),
    ("ollama-format", 400, error("invalid JSON schema in format"), "json_schema"),
    # llama.cpp and llama-cpp-python.
    ("llamacpp-format", 500, json.dumps({"error": {"code": 500,
        "message": 'response_format type must be one of "text" or "json_object", but got: json_schema',
        "type": "server_error"}}), "json_schema"),
    ("llamacpp-both", 400,
        error('Either "json_schema" or "grammar" can be specified, but not both', code=400), "json_schema"),
    ("llama-cpp-python-format", 500, error(
        '[{\'type\': \'literal_error\', \'loc\': (\'body\', \'response_format\', \'type\'), \'msg\': "Input should be \'text\' or \'json_object\'"}]',
        type="internal_server_error"), "json_schema"),
    ("llama-cpp-python-detail", 422, json.dumps({"detail": [{"type": "literal_error",
        "loc": ["body", "response_format", "type"], "msg": "Input should be 'text' or 'json_object'",
        "input": "json_schema"}]}), "json_schema"),
    ("llama-cpp-python-logprobs", 500, error(
        "logprobs is not supported for models created with logits_all=False", type="internal_server_error"),
        "logprobs"),
    # LiteLLM.
    ("litellm-unsupported", 400, litellm(
        "litellm.UnsupportedParamsError: anthropic does not support parameters: ['logprobs'], for model=claude-3-opus. To drop these, set `litellm.drop_params=True` or for proxy: ..."),
        "logprobs"),
    ("litellm-temperature", 400, litellm(
        "litellm.UnsupportedParamsError: gpt-5 models (including gpt-5-codex) don't support temperature=0.0. Only temperature=1 is supported."),
        "temperature"),
    ("litellm-both", 400, litellm(
        'litellm.BadRequestError: AnthropicException - {"type":"error","error":{"type":"invalid_request_error","message":"temperature and top_p cannot both be specified for this model."}}'),
        "top_p"),
    # LM Studio.
    ("lmstudio-format", 400, json.dumps({"error": "'response_format.type' must be 'json_schema' or 'text'"}),
        "json_schema"),
    ("lmstudio-roles", 400, json.dumps({"error": "Only user and assistant roles are supported!"}),
        "system_role"),
    # Others.
    ("deepseek-logprobs", 400, error("deepseek-reasoner does not support logprobs"), "logprobs"),
    ("together-seed", 422,
        json.dumps({"detail": [{"loc": ["body", "seed"], "msg": "unexpected value", "type": "value_error"}]}),
        "seed"),
    ("fireworks-top-logprobs", 400, error("top_logprobs: Input should be less than or equal to 5"),
        "top_logprobs"),
    ("portkey-keyword", 500,
        json.dumps({"error": "create() got an unexpected keyword argument 'reasoning_effort'"}),
        "reasoning_effort"),
    ("plain-text", 400, "unknown field: seed", "seed"),
]  # fmt: skip


def refusal(status: int, body: str) -> Refusal:
    return Refusal.read(Response(status, {}, body.encode()))


@pytest.mark.parametrize(
    ("status", "body", "parameter"), [row[1:] for row in WORDINGS], ids=[row[0] for row in WORDINGS]
)
def test_the_refused_parameter_is_recognized(status: int, body: str, parameter: str) -> None:
    step = step_down(Dialect(), EVERYTHING, refusal(status, body))
    assert step is not None
    assert step.parameter == parameter


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, error("Incorrect API key provided: temperature-sensitive.")),
        (429, error("Rate limit reached for requests: max_tokens is not counted")),
        (503, error("The model does not support this load")),
        (500, error("Internal server error")),
        (400, error("You must provide a model parameter")),
        (400, error("Invalid JSON in the request")),
        (404, error("The model `m` does not exist or you do not have access to it.", code="model_not_found")),
    ],
)
def test_other_failures_name_no_parameter(status: int, body: str) -> None:
    assert step_down(Dialect(), EVERYTHING, refusal(status, body)) is None


def test_only_what_was_sent_is_refused() -> None:
    plain = Call("m", (Message(Role.USER, "Hello."),))
    assert all(step_down(Dialect(), plain, refusal(status, body)) is None for _, status, body, _ in WORDINGS)


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens.", 16384),
        (
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for x-20250514",
            64000,
        ),
        ("max_tokens must be less than or equal to `8,192`, the maximum value for this model", 8192),
        (
            "maxOutputTokens is 100000 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
            8192,
        ),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
    ],
)
def test_a_cap_above_the_model_s_is_lowered_to_it(said: str, limit: int) -> None:
    step = step_down(Dialect(), EVERYTHING, refusal(400, error(said)))
    assert step is not None
    assert step.dialect.output_tokens(EVERYTHING) == limit
    assert not step.dialect.omit


def test_a_cap_is_named_otherwise_and_then_left_out() -> None:
    dialect = Dialect()
    names: list[str | None] = []
    for _ in range(2):
        said = error(f"Unknown parameter: '{dialect.token_parameter}'.")
        step = step_down(dialect, EVERYTHING, refusal(400, said))
        assert step is not None
        dialect = step.dialect
        names.append(dialect.token_parameter if dialect.output_tokens(EVERYTHING) else None)
    assert names == ["max_completion_tokens", None]


def test_a_cap_that_the_context_window_has_no_room_for_is_lowered_for_the_call() -> None:
    said = (
        "This model's maximum context length is 8192 tokens. However, you requested 103703 tokens (3703 in the "
        "messages, 100000 in the completion). Please reduce the length of the messages or completion."
    )
    step = step_down(Dialect(), EVERYTHING, refusal(400, error(said, code="context_length_exceeded")))
    assert step is not None
    assert not step.lasting
    assert step.dialect.output_tokens(EVERYTHING) == 8192 - 3703 - 8


def test_alternatives_are_reduced_to_the_stated_limit() -> None:
    step = step_down(Dialect(), EVERYTHING, refusal(400, error("top_logprobs must be at most 5")))
    assert step is not None
    assert step.dialect.most_top_logprobs == 5


def test_a_form_is_stepped_down_to_any_json_and_then_to_none() -> None:
    dialect = Dialect()
    for expected in (Parameter.JSON_SCHEMA, Parameter.JSON_OBJECT):
        step = step_down(dialect, EVERYTHING, refusal(400, error("response_format is not supported")))
        assert step is not None
        assert step.parameter is expected
        dialect = step.dialect


BOUNDED = replace(
    EVERYTHING,
    json_form=JsonForm(
        "verdict",
        '{"type":"object","properties":{"maximum":{"type":"string","maxLength":9},'
        '"n":{"type":"integer","minimum":1}},"required":["maximum"],"additionalProperties":false}',
    ),
)


@pytest.mark.parametrize(
    ("said", "parameter"),
    [
        (
            error(
                "Invalid schema for response_format 'verdict': In context=('properties', 'maximum'), 'maxLength' is "
                "not permitted.",
                param="response_format",
            ),
            Parameter.JSON_SCHEMA_LENGTHS,
        ),
        (
            error("output_config.format.schema: For 'integer' type, property 'minimum' is not supported"),
            Parameter.JSON_SCHEMA_RANGES,
        ),
        (
            error("output_format.schema: For 'integer' type, properties maximum, minimum are not supported"),
            Parameter.JSON_SCHEMA_RANGES,
        ),
        (
            error(
                "output_config.format.schema: For 'array' type, 'minItems' values other than 0 or 1 are not supported"
            ),
            Parameter.JSON_SCHEMA_RANGES,
        ),
        (
            error("The provided JSON schema contains features not supported by xgrammar."),
            Parameter.JSON_SCHEMA_LENGTHS,
        ),
        (error("Failed to parse grammar"), Parameter.JSON_SCHEMA_LENGTHS),
        (
            error("response_format of type 'json_schema' is not supported with this model."),
            Parameter.JSON_SCHEMA,
        ),
        (
            error("This model's maximum number of output tokens is 4096; max_tokens is too large"),
            Parameter.MAX_OUTPUT_TOKENS,
        ),
    ],
)
def test_bounds_of_a_schema_are_left_out_before_the_schema(said: str, parameter: Parameter) -> None:
    step = step_down(Dialect(), BOUNDED, refusal(400, said))
    assert step is not None
    assert step.parameter is parameter
    assert step.dialect.omitted(BOUNDED) == (("json_schema",) if parameter is Parameter.JSON_SCHEMA else ())


def test_a_schema_without_bounds_keeps_the_rest() -> None:
    without = Dialect(omit=frozenset(SCHEMA_BOUNDS))
    assert json.loads(without.schema(BOUNDED)) == {
        "type": "object",
        "properties": {"maximum": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["maximum"],
        "additionalProperties": False,
    }
    assert without.schema(EVERYTHING) == EVERYTHING.json_form.text  # type: ignore[union-attr]


def test_bounds_of_one_kind_are_left_out_after_the_other_and_then_the_schema() -> None:
    dialect, refused = Dialect(), []
    for _ in range(3):
        step = step_down(dialect, BOUNDED, refusal(400, error("Failed to parse grammar")))
        assert step is not None
        dialect = step.dialect
        refused.append(step.parameter)
    assert refused == [*SCHEMA_BOUNDS, Parameter.JSON_SCHEMA]


def test_a_model_that_only_streams_is_streamed_to() -> None:
    said = "This model only support stream mode, please enable the stream parameter to access the model."
    step = step_down(Dialect(), EVERYTHING, refusal(400, error(said)))
    assert step is not None
    assert step.dialect.stream
