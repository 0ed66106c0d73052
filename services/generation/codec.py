"""Between the messages of the contract and the domain's types; and the domain's errors as statuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import grpc

from dramaturg.api.common.v1 import error_reason_pb2, judging_pb2, provenance_pb2
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.errors import ServiceError, Violation, invalid_fields
from services.generation.answers.forms import InvalidSchemaError, JsonForm
from services.generation.calls import Call, Completion, Message, Purchase, Role, Sampling, Status, Token
from services.generation.completions import CachePolicy
from services.generation.errors import (
    DeadlinePassedError,
    FailureKind,
    ModelUnknownError,
    NotRecordedError,
    ProviderError,
)
from services.generation.ledger import KeptBy, LedgerStatus, LedgerUnavailableError

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
}
_KINDS = {
    KeptBy.MEMORY: pb.LEDGER_KIND_MEMORY,
    KeptBy.SQLITE: pb.LEDGER_KIND_SQLITE,
    KeptBy.POSTGRESQL: pb.LEDGER_KIND_POSTGRESQL,
}
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
    FailureKind.UNAUTHENTICATED: (
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
    ),
}


def decode_request(request: pb.GenerateRequest) -> tuple[Call, CachePolicy]:
    """The call that a request asks for, its model still as the caller names it.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation that the contract's limits cannot express.
    """
    violations = list(_violations(request))
    form: JsonForm | None = None
    if request.HasField("json_format"):
        try:
            form = JsonForm(request.json_format.name, request.json_format.schema)
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
    """The conversation; every role must be stated."""
    return tuple(Message(_ROLES[message.role], message.text) for message in messages)


def _violations(request: pb.GenerateRequest) -> Iterator[Violation]:
    for index, message in enumerate(request.messages):
        if message.role not in _ROLES:
            yield Violation(f"messages[{index}].role", "must be system, user or assistant")
    if request.top_logprobs and not request.logprobs:
        yield Violation("top_logprobs", "needs logprobs")
    if request.cache_policy not in _POLICIES:
        yield Violation("cache_policy", "is not known")


def decode_sampling(sampling: judging_pb2.Sampling) -> Sampling:
    """How to sample; absent members stay with the provider."""
    return Sampling(
        temperature=sampling.temperature if sampling.HasField("temperature") else None,
        top_p=sampling.top_p if sampling.HasField("top_p") else None,
        max_output_tokens=sampling.max_output_tokens if sampling.HasField("max_output_tokens") else None,
        seed=sampling.seed if sampling.HasField("seed") else None,
        stop=tuple(sampling.stop),
    )


def encode_completion(completion: Completion) -> pb.Completion:
    """The completion as a message."""
    message = pb.Completion(
        status=_STATUSES[completion.status],
        text=completion.text or completion.answer.refusal,
        json=completion.json if completion.status is Status.OK else None,
        repairs=completion.repairs,
        parse_error=completion.parse_error,
        logprobs=map(_token, completion.answer.tokens),
        calls=encode_calls(completion.purchases),
        usage=encode_usage(completion.purchases),
        fingerprint=completion.fingerprint,
    )
    message.latency.FromNanoseconds(round(completion.latency * 1e9))
    return message


def _token(token: Token) -> pb.TokenLogprob:
    return pb.TokenLogprob(
        token=token.text,
        logprob=token.logprob,
        alternatives=[pb.AlternativeToken(token=a.token, logprob=a.logprob) for a in token.alternatives],
    )


def encode_calls(purchases: Iterable[Purchase]) -> list[provenance_pb2.CompletionReference]:
    """The calls as references, each with what it cost."""
    return [_call(purchase) for purchase in purchases]


def _call(purchase: Purchase) -> provenance_pb2.CompletionReference:
    reference = provenance_pb2.CompletionReference(
        fingerprint=purchase.fingerprint,
        provider=purchase.provider,
        requested_model=purchase.requested_model,
        answered_model=purchase.answer.model,
        raw_text=purchase.answer.text,
        cached=purchase.cached,
        usage=encode_usage([purchase]),
    )
    reference.latency.FromNanoseconds(round(purchase.answer.latency * 1e9))
    return reference


def encode_usage(purchases: Iterable[Purchase]) -> provenance_pb2.Usage:
    """What the calls cost together this time."""
    usage = provenance_pb2.Usage()
    for purchase in purchases:
        if purchase.cost is not None:
            usage.cost_usd += purchase.cost
        if purchase.cached:
            usage.cache_hit_count += 1
            continue
        counts = purchase.answer.counts
        if counts is not None:
            usage.prompt_token_count += counts.prompt
            usage.completion_token_count += counts.completion
            usage.cached_prompt_token_count += counts.cached_prompt
        usage.provider_call_count += 1
        usage.unmetered_call_count += counts is None
        usage.unpriced_call_count += purchase.cost is None
        usage.retried_call_count += purchase.answer.retried
    return usage


def encode_ledger_status(status: LedgerStatus) -> pb.LedgerStatus:
    """What a ledger holds, as a message."""
    message = pb.LedgerStatus(
        kind=_KINDS[status.kept_by],
        completion_count=status.completions,
        size_bytes=status.size,
        process_count=status.processes,
        call_under_way_count=status.under_way,
        possibly_paid_twice_count=status.lost + status.abandoned,
        abandoned_call_count=status.abandoned,
        unwritten_completion_count=status.unwritten,
    )
    for call in status.lost_calls:
        listed = message.lost_calls.add(
            fingerprint=call.fingerprint, process_id=call.process, abandoned=call.abandoned
        )
        listed.send_time.FromNanoseconds(round(call.sent_at * 1e9))
    return message


@contextmanager
def domain_errors() -> Iterator[None]:
    """Turns the domain's errors into those of the contract."""
    try:
        yield
    except ModelUnknownError as error:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
            str(error),
            metadata={"model": error.model},
        ) from error
    except NotRecordedError as error:
        raise ServiceError(
            grpc.StatusCode.NOT_FOUND,
            error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
            str(error),
            metadata={"provider": error.provider, "fingerprint": error.fingerprint},
        ) from error
    except DeadlinePassedError as error:
        raise ServiceError(
            grpc.StatusCode.DEADLINE_EXCEEDED, error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED, str(error)
        ) from error
    except LedgerUnavailableError as error:
        raise ServiceError(
            grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_STORE_UNAVAILABLE, str(error)
        ) from error
    except ProviderError as fault:
        raise _service_error(fault) from fault


def _service_error(fault: ProviderError) -> ServiceError:
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
