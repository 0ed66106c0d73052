"""Checks whether a provider and one of its models work, with one small call a feature."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum

from dramaturg.service.threads import gather_all
from services.generation.answers.forms import JsonForm
from services.generation.calls import (
    Answer,
    Call,
    Completion,
    Deadline,
    FailureKind,
    Message,
    NotRecordedError,
    ProviderError,
    Purchase,
    Role,
    Sampling,
    Status,
    timeout,
)
from services.generation.completions import bought, read_outcome
from services.generation.metrics import count_purchase
from services.generation.pricing import STANDARD_BATCH_SHARE, Price
from services.generation.providers.base import Provider
from services.generation.providers.parameters import Parameter
from services.generation.registry import ConfiguredProvider, Registry

CAP = 2048
"""The cap on the answers of checks, in tokens: a reasoning model has room to answer."""
USAGE_CAP = 16
"""The same of the check of token counts, which needs no answer of use."""
LONG_PROMPT_WORDS = 8000


class Feature(StrEnum):
    """The checked features."""

    CONNECTION = "connection"
    TEXT = "text"
    JSON_SCHEMA = "json schema"
    JSON_OBJECT = "json object"
    LOGPROBS = "logprobs"
    LONG_PROMPT = "long prompt"
    REASONING = "reasoning"
    USAGE = "token counts"


class Works(StrEnum):
    """Whether a feature works."""

    OK = "ok"
    NOT_SUPPORTED = "not supported"
    """The model answers without it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one feature."""

    feature: Feature
    works: Works
    detail: str = ""
    remedy: str = ""
    kind: FailureKind | None = None
    """The kind of a failure. None: there is none."""
    latency: float = 0.0
    purchases: tuple[Purchase, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderCheck:
    """The results for a provider and one of its models."""

    provider: str
    model: str
    address: str
    findings: Sequence[Finding] = field(default_factory=tuple)
    price: Price | None = None
    price_source: str = ""
    batch_share: float | None = None
    """The share of the price that tokens cost in a batch. None: the provider has no batches here."""


_FORM = JsonForm(
    "check",
    '{"type":"object","properties":{"ready":{"type":"boolean"}},"required":["ready"],"additionalProperties":false}',
)
_ASK_TEXT = "Answer with the one word: ready"
_ASK_JSON = 'Answer with this JSON object and nothing else: {"ready": true}'
_ASK_REASONING = "A bat and a ball cost 1.10 together, the bat costs 1.00 more. What does the ball cost?"


def _calls(model: str) -> Mapping[Feature, Call]:
    asked = Call(model, (Message(Role.USER, _ASK_TEXT),), Sampling(max_output_tokens=CAP))
    long_prompt = Message(Role.USER, "word " * LONG_PROMPT_WORDS + "\n" + _ASK_TEXT)
    formed = replace(asked, messages=(Message(Role.USER, _ASK_JSON),), json_form=_FORM)
    return {
        Feature.TEXT: asked,
        Feature.JSON_SCHEMA: formed,
        Feature.JSON_OBJECT: replace(formed, omit=frozenset({Parameter.JSON_SCHEMA})),
        Feature.LOGPROBS: replace(asked, logprobs=True, top_logprobs=2),
        Feature.LONG_PROMPT: replace(asked, messages=(long_prompt,)),
        Feature.REASONING: replace(
            asked,
            messages=(Message(Role.USER, _ASK_REASONING),),
            sampling=Sampling(max_output_tokens=CAP, reasoning_effort="low"),
        ),
        Feature.USAGE: replace(asked, sampling=Sampling(max_output_tokens=USAGE_CAP)),
    }


class ProviderChecker:
    """Checks the configured providers, without retries, limits and the ledger."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def check(self, name: str, features: Sequence[Feature], deadline: Deadline) -> ProviderCheck:
        """Checks the connection, then the features. After a lasting failure nothing more is called.

        Args:
            name: The model, as callers name it.
            features: The features to check in addition to the connection.
            deadline: The end of the check. Checks that are not finished by then have failed.

        Raises:
            ModelUnknownError: no model can be chosen.
        """
        configured, model = self._registry.resolve(name)
        provider = configured.checked or configured.provider
        findings = [await _connection(provider, model, deadline)]
        wanted = [feature for feature in dict.fromkeys(features) if feature is not Feature.CONNECTION]
        calls = _calls(model)
        if wanted and findings[0].works is not Works.FAILED:
            first = await _feature(configured, provider, wanted[0], calls[wanted[0]], deadline)
            findings.append(first)
            if first.kind not in _LASTING:
                findings += await gather_all(
                    [
                        _feature(configured, provider, feature, calls[feature], deadline)
                        for feature in wanted[1:]
                    ]
                )
        address = provider.address.partition(" ")[0]
        prices = configured.prices
        return ProviderCheck(
            provider.name,
            model,
            address,
            findings,
            prices.price(model),
            prices.source(model),
            batch_share(configured, model),
        )


def batch_share(configured: ConfiguredProvider, model: str) -> float | None:
    """The share of its price that a model costs in a batch. None: its provider has no batches here."""
    if configured.batches is None:
        return None
    price = configured.prices.price(model)
    return STANDARD_BATCH_SHARE if price is None else price.batch


_LASTING = frozenset(
    {
        FailureKind.UNAUTHENTICATED,
        FailureKind.MODEL_UNKNOWN,
        FailureKind.OTHER_API,
        FailureKind.ADDRESS_INVALID,
        FailureKind.CREDIT_EXHAUSTED,
    }
)


async def _connection(provider: Provider, model: str, deadline: Deadline) -> Finding:
    try:
        async with asyncio.timeout(timeout(deadline)):
            models = list(await provider.models())
    except TimeoutError:
        return _late(Feature.CONNECTION)
    except ProviderError as fault:
        return await _unlisted(provider, model, fault, deadline)
    if model in models or f"models/{model}" in models:
        return Finding(Feature.CONNECTION, Works.OK, f"{len(models)} models, this one among them")
    if (refusal := await _model_unknown(provider, model, deadline)) is not None:
        return _failed(Feature.CONNECTION, refusal)
    close = get_close_matches(model, models, 3)
    hint = f"; the closest are {', '.join(close)}" if close else ""
    detail = f"the provider lists {len(models)} models and not this one{hint}"
    remedy = "Correct the model's name if calls fail; some providers list not all of their models."
    return Finding(Feature.CONNECTION, Works.OK, detail, remedy)


async def _model_unknown(provider: Provider, model: str, deadline: Deadline) -> ProviderError | None:
    """The refusal of a model that the provider does not list, by a request without messages."""
    try:
        async with asyncio.timeout(timeout(deadline)):
            await _complete(provider, Call(model, ()), deadline)
    except ProviderError as fault:
        return fault if fault.kind in {FailureKind.MODEL_UNKNOWN, FailureKind.OTHER_API} else None
    except (TimeoutError, NotRecordedError):
        pass
    return None


async def _unlisted(provider: Provider, model: str, fault: ProviderError, deadline: Deadline) -> Finding:
    """The connection to a provider that lists no models: a request without messages costs nothing."""
    if fault.kind in {FailureKind.UNAUTHENTICATED, FailureKind.CREDIT_EXHAUSTED} or not fault.status:
        return _failed(Feature.CONNECTION, fault)
    try:
        async with asyncio.timeout(timeout(deadline)):
            await _complete(provider, Call(model, ()), deadline)
    except TimeoutError:
        return _late(Feature.CONNECTION)
    except ProviderError as empty:
        if empty.kind is not FailureKind.REJECTED and empty.status < 500:
            return _failed(Feature.CONNECTION, empty)
    return Finding(Feature.CONNECTION, Works.OK, f"the provider does not list its models: {fault}")


async def _feature(
    configured: ConfiguredProvider, provider: Provider, feature: Feature, call: Call, deadline: Deadline
) -> Finding:
    if feature is Feature.USAGE:
        # The judges of a run ask at once.
        async with configured.usage_check:
            known = _known_usage(configured, call.model)
            return known or await _called(configured, provider, feature, call, deadline)
    return await _called(configured, provider, feature, call, deadline)


async def _called(
    configured: ConfiguredProvider, provider: Provider, feature: Feature, call: Call, deadline: Deadline
) -> Finding:
    try:
        async with asyncio.timeout(timeout(deadline)):
            answer = await _complete(provider, call, deadline)
    except TimeoutError:
        return _late(feature)
    except ProviderError as fault:
        return _failed(feature, fault)
    purchase = bought(configured, call, answer)
    count_purchase(purchase)
    completion = read_outcome((purchase,), call)
    works, detail, remedy = _READERS.get(feature, _text)(completion)
    return Finding(
        feature,
        works,
        detail or _left_out(call, answer),
        remedy,
        latency=answer.latency,
        purchases=(purchase,),
    )


def _known_usage(configured: ConfiguredProvider, model: str) -> Finding | None:
    """What is known of the token counts of a model without a call. None: nothing."""
    if configured.provider.keeps:
        return Finding(Feature.USAGE, Works.OK, "answers of a recording are not charged")
    known = configured.states_usage.get(model)
    if known is None:
        return None
    return Finding(Feature.USAGE, *_USAGE[known])


async def _complete(provider: Provider, call: Call, deadline: Deadline) -> Answer:
    """Completes a call of a server that has answered before.

    Servers built on Starlette close a connection after a response with status 500 and do not say so. The next
    request on that connection fails; the one after it has a new connection.
    """
    try:
        return await provider.complete(call, deadline)
    except ProviderError as fault:
        if fault.status or fault.kind is not FailureKind.TRANSIENT:
            raise
    return await provider.complete(call, deadline)


def _late(feature: Feature) -> Finding:
    told = "Check that the server answers; give a slow one more time with --timeout."
    return Finding(feature, Works.FAILED, "no answer in time", told, FailureKind.TRANSIENT)


def _failed(feature: Feature, fault: ProviderError) -> Finding:
    return Finding(feature, Works.FAILED, str(fault), remedy(fault.kind, fault.status), fault.kind)


_Read = tuple[Works, str, str]


def _text(completion: Completion) -> _Read:
    if completion.status is Status.OK:
        return Works.OK, "", ""
    if completion.status is Status.TRUNCATED:
        return Works.FAILED, completion.detail, "Raise max_output_tokens, or lower reasoning_effort."
    return Works.FAILED, completion.detail or f"the answer is {completion.status.value}", ""


def _json_schema(completion: Completion) -> _Read:
    return _json(completion, Parameter.JSON_SCHEMA)


def _json_object(completion: Completion) -> _Read:
    return _json(completion, Parameter.JSON_OBJECT)


def _json(completion: Completion, parameter: Parameter) -> _Read:
    if completion.status is not Status.OK:
        works, detail, told = _text(completion)
        told = told or "Choose a model that follows instructions, or an endpoint that enforces schemas."
        return works, f"the answer does not fit the schema: {detail}", told
    if parameter in completion.answer.omitted:
        return Works.NOT_SUPPORTED, "not enforced; the schema is in the prompt", ""
    return Works.OK, "", ""


def _logprobs(completion: Completion) -> _Read:
    if completion.status is not Status.OK:
        return _text(completion)
    if completion.answer.tokens:
        return Works.OK, "", ""
    told = "Confidences of pairs and edges need an endpoint with log-probabilities."
    return Works.NOT_SUPPORTED, "no log-probabilities", told


def _reasoning(completion: Completion) -> _Read:
    if completion.status is not Status.OK:
        return _text(completion)
    answer = completion.answer
    tokens = answer.counts.reasoning if answer.counts else 0
    if tokens or answer.reasoning:
        counted = f"{tokens} reasoning tokens" if tokens else "reasoning shown and not counted"
        return Works.OK, counted, ""
    return Works.NOT_SUPPORTED, "the model shows no reasoning", ""


_USAGE: Mapping[bool, _Read] = {
    True: (Works.OK, "", ""),
    False: (
        Works.NOT_SUPPORTED,
        "the answers state no token counts",
        "Budgets of tokens and cost need an endpoint that states them, or budget.estimate_unreported_usage.",
    ),
}


def _usage(completion: Completion) -> _Read:
    return _USAGE[completion.answer.counts is not None]


_READERS: Mapping[Feature, Callable[[Completion], _Read]] = {
    Feature.JSON_SCHEMA: _json_schema,
    Feature.JSON_OBJECT: _json_object,
    Feature.LOGPROBS: _logprobs,
    Feature.REASONING: _reasoning,
    Feature.USAGE: _usage,
}


def _left_out(call: Call, answer: Answer) -> str:
    omitted = [name for name in answer.omitted if name not in call.omit]
    return f"without {', '.join(omitted)}" if omitted else ""


_REMEDIES = {
    FailureKind.UNAUTHENTICATED: (
        "Check the key: OPENAI_API_KEY, or api_key_env or api_key_file of the provider, and api_key_header."
    ),
    FailureKind.MODEL_UNKNOWN: "Name a model that the provider has; `dramaturg providers` lists them.",
    FailureKind.OTHER_API: (
        "The provider serves this model over another API: set the kind that its words name in "
        "[generation.providers.NAME], or name another model."
    ),
    FailureKind.CREDIT_EXHAUSTED: "Add credit to the account at the provider, or use another provider.",
    FailureKind.ADDRESS_INVALID: (
        "Correct base_url (OPENAI_BASE_URL): it must hold the API's path, which often ends in /v1."
    ),
    FailureKind.CONTEXT_LENGTH: "Use a model with a longer context window, or shorter inputs.",
    FailureKind.RATE_LIMITED: "Wait, or lower concurrency.maximum of the provider.",
    FailureKind.REJECTED: "Read the provider's words; list a parameter that it refuses under omit.",
}


def remedy(kind: FailureKind, status: int = 0) -> str:
    """The advice to the user for a failure."""
    if kind is FailureKind.TRANSIENT:
        if status:
            return "The provider failed: try again later, and read the server's log if it is yours."
        return "Check that the server runs and that base_url (OPENAI_BASE_URL) is its address; check proxies."
    return _REMEDIES[kind]
