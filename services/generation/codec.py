"""Between the messages of the contract and the domain's types and errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import grpc
from google.protobuf.duration_pb2 import Duration

from dramaturg.api.common.v1 import error_reason_pb2, judging_pb2, provenance_pb2
from dramaturg.api.common.v1.content_pb2 import Part
from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_UNSPECIFIED
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.judge.conversations import image_type
from dramaturg.service.errors import ServiceError, Violation, invalid_fields
from services.generation.answers.forms import InvalidSchemaError, JsonForm, json_form
from services.generation.calls import (
    BatchPendingError,
    Call,
    Completion,
    DeadlinePassedError,
    FailureKind,
    Image,
    Message,
    ModelUnknownError,
    NotRecordedError,
    ProviderError,
    Purchase,
    Role,
    Sampling,
    Status,
    Token,
)
from services.generation.completions import CachePolicy
from services.generation.ledger import LedgerKind, LedgerStatus, LedgerUnavailableError
from services.generation.limits.limiter import RateStatus
from services.generation.provider_checks import Feature, Finding, ProviderCheck, Works

DOMAIN_ERRORS = (
    ModelUnknownError,
    NotRecordedError,
    DeadlinePassedError,
    LedgerUnavailableError,
    ProviderError,
    BatchPendingError,
)
"""The errors that [service_error] maps."""

_FAULTS = {
    FailureKind.RATE_LIMITED: (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_PROVIDER_RATE_LIMITED,
    ),
    FailureKind.TRANSIENT: (grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE),
    FailureKind.REJECTED: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED,
    ),
    FailureKind.MODEL_UNKNOWN: (
        grpc.StatusCode.INVALID_ARGUMENT,
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
    ),
    FailureKind.OTHER_API: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
    ),
    FailureKind.UNAUTHENTICATED: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
    ),
    FailureKind.CREDIT_EXHAUSTED: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
    ),
    FailureKind.ADDRESS_INVALID: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
    ),
    FailureKind.CONTEXT_LENGTH: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED,
    ),
}


def reason_of(kind: FailureKind) -> error_reason_pb2.ErrorReason.ValueType:
    """The reason that the contract has for a failure."""
    return _FAULTS[kind][1]


def service_error(error: Exception) -> ServiceError:
    """One of the domain's errors as that of the contract."""
    match error:
        case ModelUnknownError():
            return ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
                str(error),
                metadata={"model": error.model},
            )
        case NotRecordedError():
            return ServiceError(
                grpc.StatusCode.NOT_FOUND,
                error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
                str(error),
                metadata={"provider": error.provider, "fingerprint": error.fingerprint},
            )
        case DeadlinePassedError():
            return ServiceError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
                str(error),
            )
        case LedgerUnavailableError():
            return ServiceError(
                grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_STORE_UNAVAILABLE, str(error)
            )
        case BatchPendingError():
            return ServiceError(
                grpc.StatusCode.ABORTED,
                error_reason_pb2.ERROR_REASON_BATCH_PENDING,
                f"provider {error.provider!r}: {error}",
                metadata={"provider": error.provider},
                retry_after=error.retry_after,
            )
        case ProviderError():
            return _provider_error(error)
    raise TypeError(f"not an error of the domain: {error!r}")


def _provider_error(fault: ProviderError) -> ServiceError:
    code, reason = _FAULTS[fault.kind]
    metadata = {"provider": fault.provider}
    if fault.status:
        metadata["status"] = str(fault.status)
    return ServiceError(
        code,
        reason,
        f"provider {fault.provider!r}: {fault}",
        metadata=metadata,
        retry_after=fault.retry_after,
    )


_ROLES = {
    pb.MESSAGE_ROLE_SYSTEM: Role.SYSTEM,
    pb.MESSAGE_ROLE_USER: Role.USER,
    pb.MESSAGE_ROLE_ASSISTANT: Role.ASSISTANT,
}
_POLICIES = {
    pb.CACHE_POLICY_UNSPECIFIED: CachePolicy.USE,
    pb.CACHE_POLICY_USE: CachePolicy.USE,
    pb.CACHE_POLICY_REFRESH: CachePolicy.REFRESH,
    pb.CACHE_POLICY_BYPASS: CachePolicy.BYPASS,
}
_STATUSES = {
    Status.OK: pb.COMPLETION_STATUS_OK,
    Status.UNPARSABLE: pb.COMPLETION_STATUS_UNPARSABLE,
    Status.REFUSED: pb.COMPLETION_STATUS_REFUSED,
    Status.TRUNCATED: pb.COMPLETION_STATUS_TRUNCATED,
    Status.EMPTY: pb.COMPLETION_STATUS_EMPTY,
    Status.TOOL_CALL: pb.COMPLETION_STATUS_TOOL_CALL,
    Status.INTERRUPTED: pb.COMPLETION_STATUS_INTERRUPTED,
    Status.FILTERED: pb.COMPLETION_STATUS_FILTERED,
}
_FEATURES = {
    pb.PROVIDER_FEATURE_CONNECTION: Feature.CONNECTION,
    pb.PROVIDER_FEATURE_TEXT: Feature.TEXT,
    pb.PROVIDER_FEATURE_JSON_SCHEMA: Feature.JSON_SCHEMA,
    pb.PROVIDER_FEATURE_JSON_OBJECT: Feature.JSON_OBJECT,
    pb.PROVIDER_FEATURE_LOGPROBS: Feature.LOGPROBS,
    pb.PROVIDER_FEATURE_LONG_PROMPT: Feature.LONG_PROMPT,
    pb.PROVIDER_FEATURE_REASONING: Feature.REASONING,
    pb.PROVIDER_FEATURE_USAGE: Feature.USAGE,
}
_FEATURE_VALUES = {feature: value for value, feature in _FEATURES.items()}
_WORKS = {
    Works.OK: pb.FEATURE_STATUS_OK,
    Works.NOT_SUPPORTED: pb.FEATURE_STATUS_NOT_SUPPORTED,
    Works.FAILED: pb.FEATURE_STATUS_FAILED,
}
_KINDS = {
    LedgerKind.MEMORY: pb.LEDGER_KIND_MEMORY,
    LedgerKind.SQLITE: pb.LEDGER_KIND_SQLITE,
    LedgerKind.POSTGRESQL: pb.LEDGER_KIND_POSTGRESQL,
}


def decode_request(request: pb.GenerateRequest) -> tuple[Call, CachePolicy]:
    """The call that a request asks for, its model still as the caller names it.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation that the contract's limits cannot express.
    """
    violations = _violations(request)
    form: JsonForm | None = None
    if request.HasField("json_format"):
        try:
            asked = request.json_format
            form = json_form(asked.name, asked.schema, asked.accepted_schema)
        except InvalidSchemaError as error:
            violations.append(Violation("json_format.schema", str(error)))
    if violations:
        raise invalid_fields(violations)
    call = Call(
        model=request.model,
        messages=decode_messages(request.messages),
        sampling=decode_sampling(request.sampling),
        json_form=form,
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        repeat_index=request.repeat_index,
    )
    return call, _POLICIES[request.cache_policy]


def decode_messages(messages: Iterable[pb.Message]) -> tuple[Message, ...]:
    """The conversation; every role must be stated, and images have a known type."""
    return tuple(
        [
            Message(_ROLES[message.role], message.text, _decode_parts(message.parts) if message.parts else ())
            for message in messages
        ]
    )


def _decode_parts(parts: Sequence[Part]) -> tuple[str | Image, ...]:
    return tuple(
        [
            Image(one.image.data, image_type(one.image.data)) if one.HasField("image") else one.text
            for one in parts
        ]
    )


def _part_violations(message: pb.Message, path: str) -> Iterator[Violation]:
    for index, part in enumerate(message.parts):
        content = part.WhichOneof("content")
        place = f"{path}.parts[{index}]"
        if content not in ("text", "image"):
            yield Violation(
                place, f"is {content or 'empty'}: a message has texts and images; write others as text"
            )
        elif content == "image" and message.role != pb.MESSAGE_ROLE_USER:
            yield Violation(place, "is an image: only messages of the user have images")
        elif content == "image" and part.image.WhichOneof("source") != "data":
            yield Violation(f"{place}.image.uri", "is never read: send the image itself as data")
        elif content == "image" and not image_type(part.image.data):
            yield Violation(f"{place}.image.data", "must be PNG, JPEG, GIF or WebP")


def _violations(request: pb.GenerateRequest) -> list[Violation]:
    violations = [
        Violation(f"messages[{index}].role", "must be system, user or assistant")
        for index, message in enumerate(request.messages)
        if message.role not in _ROLES
    ]
    for index, message in enumerate(request.messages):
        if message.parts:
            violations += _part_violations(message, f"messages[{index}]")
    if request.top_logprobs and not request.logprobs:
        violations.append(Violation("top_logprobs", "needs logprobs"))
    if request.cache_policy not in _POLICIES:
        violations.append(Violation("cache_policy", "is not known"))
    return violations


def decode_sampling(sampling: judging_pb2.Sampling) -> Sampling:
    """How to sample; absent members stay with the provider."""
    return Sampling(
        temperature=sampling.temperature if sampling.HasField("temperature") else None,
        top_p=sampling.top_p if sampling.HasField("top_p") else None,
        max_output_tokens=sampling.max_output_tokens if sampling.HasField("max_output_tokens") else None,
        seed=sampling.seed if sampling.HasField("seed") else None,
        stop=tuple(sampling.stop),
        reasoning_effort=sampling.reasoning_effort,
    )


def encode_completion(completion: Completion, latency: float) -> pb.Completion:
    """The completion as a message, with the seconds that the whole request took."""
    answer, calls = completion.answer, encode_calls(completion.purchases)
    return pb.Completion(
        status=_STATUSES[completion.status],
        text=answer.text or answer.refusal,
        json=completion.json if completion.status is Status.OK else None,
        repairs=completion.repairs,
        parse_error=completion.parse_error,
        status_detail=completion.detail,
        reasoning=answer.reasoning,
        logprobs=map(_token, answer.tokens),
        calls=calls,
        usage=_whole_usage(completion, calls),
        fingerprint=completion.fingerprint,
        latency=_duration(latency),
    )


def _whole_usage(
    completion: Completion, calls: Sequence[provenance_pb2.CompletionReference]
) -> provenance_pb2.Usage:
    purchases = completion.purchases
    if len(calls) == 1:  # as most have
        usage = provenance_pb2.Usage()
        usage.CopyFrom(calls[0].usage)
    else:
        usage = encode_usage(purchases)
    used = 1 if completion.status is Status.OK else 0
    unused = [purchase for purchase in purchases[: len(purchases) - used] if not purchase.cached]
    if unused:
        usage.unused_completion_count = len(unused)
        costs = [purchase.cost for purchase in unused if purchase.cost is not None]
        if costs:
            usage.unused_cost_usd = sum(costs)
    return usage


def _token(token: Token) -> pb.TokenLogprob:
    return pb.TokenLogprob(
        token=token.text,
        logprob=token.logprob,
        alternatives=[pb.AlternativeToken(token=a.token, logprob=a.logprob) for a in token.alternatives],
    )


def encode_calls(purchases: Iterable[Purchase]) -> list[provenance_pb2.CompletionReference]:
    """The calls as references, each with its cost."""
    return [_call(purchase) for purchase in purchases]


def _call(purchase: Purchase) -> provenance_pb2.CompletionReference:
    return provenance_pb2.CompletionReference(
        fingerprint=purchase.fingerprint,
        provider=purchase.provider,
        requested_model=purchase.requested_model,
        answered_model=purchase.answer.model,
        raw_text=purchase.answer.text,
        cached=purchase.cached,
        usage=encode_usage((purchase,)),
        latency=_duration(purchase.answer.latency),
        omitted_parameters=purchase.answer.omitted,
        notes=purchase.answer.notes,
        reasoning_token_count=purchase.answer.counts.reasoning if purchase.answer.counts else 0,
    )


def _duration(seconds: float) -> Duration:
    whole, nanoseconds = divmod(round(seconds * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanoseconds)


def encode_usage(purchases: Sequence[Purchase]) -> provenance_pb2.Usage:
    """The current cost of all calls."""
    cost: float | None = None
    estimates = [one.estimate for one in purchases if one.estimate is not None and not one.cached]
    estimated_costs = [one.cost for one in estimates if one.cost is not None]
    prompt = completion = cached_prompt = bought = unmetered = unpriced = retried = 0
    for purchase in purchases:
        if purchase.cost is not None:
            cost = (cost or 0.0) + purchase.cost
        if purchase.cached:
            continue
        answer = purchase.answer
        if answer.counts is None:
            unmetered += 1
        else:
            prompt += answer.counts.prompt
            completion += answer.counts.completion
            cached_prompt += answer.counts.cached_prompt
        bought += 1
        unpriced += purchase.cost is None
        retried += answer.retried
    return provenance_pb2.Usage(
        prompt_token_count=prompt,
        completion_token_count=completion,
        cached_prompt_token_count=cached_prompt,
        provider_call_count=bought,
        cache_hit_count=len(purchases) - bought,
        cost_usd=cost,
        unmetered_call_count=unmetered,
        unpriced_call_count=unpriced,
        retried_call_count=retried,
        estimated_call_count=len(estimates),
        estimated_token_count=sum(one.tokens for one in estimates),
        estimated_cost_call_count=len(estimated_costs),
        estimated_cost_usd=sum(estimated_costs) if estimated_costs else None,
    )


def encode_limits(provider: str, status: RateStatus) -> pb.ModelLimits:
    """The limits of a model, as a message."""
    waits = status.next_seconds > 0
    return pb.ModelLimits(
        model=status.model,
        waiting_call_count=status.waiting,
        call_under_way_count=status.in_flight,
        concurrency_limit=status.concurrency_limit,
        request_count=status.requests_made,
        requests_per_minute=status.requests_per_minute,
        next_delay=_duration(status.next_seconds) if waits else None,
        wait=status.sentence(provider) if waits else "",
    )


def encode_ledger_status(status: LedgerStatus) -> pb.LedgerStatus:
    """The status of a ledger as a message."""
    message = pb.LedgerStatus(
        kind=_KINDS[status.kind],
        completion_count=status.completions,
        size_bytes=status.size,
        process_count=status.processes,
        call_under_way_count=status.under_way,
        possibly_paid_twice_count=status.lost + status.abandoned + status.bought_again,
        abandoned_call_count=status.abandoned,
        unwritten_completion_count=status.unwritten,
        bought_again_call_count=status.bought_again,
    )
    for call in status.lost_calls:
        listed = message.lost_calls.add(
            fingerprint=call.fingerprint,
            process_id=call.process,
            abandoned=call.abandoned,
            answered=call.answered,
        )
        listed.send_time.FromNanoseconds(round(call.sent_at * 1e9))
    return message


def decode_features(features: Iterable[pb.ProviderFeature.ValueType]) -> list[Feature]:
    """The features to check.

    Raises:
        ServiceError: INVALID_ARGUMENT for a feature that is not known.
    """
    features = list(features)
    violations = [
        Violation(f"features[{index}]", "is not known")
        for index, feature in enumerate(features)
        if feature not in _FEATURES
    ]
    if violations:
        raise invalid_fields(violations)
    return [_FEATURES[feature] for feature in features]


def encode_check(check: ProviderCheck) -> pb.ProviderCheck:
    """The result of a provider check as a message."""
    price = check.price
    return pb.ProviderCheck(
        provider=check.provider,
        model=check.model,
        address=check.address,
        features=map(_finding, check.findings),
        prompt_usd_per_million=None if price is None else price.prompt,
        completion_usd_per_million=None if price is None else price.completion,
        price_source=check.price_source,
        batch_price_share=check.batch_share,
    )


def _finding(finding: Finding) -> pb.FeatureCheck:
    omitted = finding.purchases[-1].answer.omitted if finding.purchases else ()
    return pb.FeatureCheck(
        feature=_FEATURE_VALUES[finding.feature],
        status=_WORKS[finding.works],
        detail=finding.detail,
        remedy=finding.remedy,
        reason=ERROR_REASON_UNSPECIFIED if finding.kind is None else reason_of(finding.kind),
        latency=_duration(finding.latency),
        usage=encode_usage(finding.purchases),
        omitted_parameters=omitted,
    )
