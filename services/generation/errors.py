"""What can go wrong between a request and an answer, in the words of the domain."""

from __future__ import annotations

from enum import StrEnum

from services.generation.limits.stated_quotas import Quotas


class FailureKind(StrEnum):
    """The kinds of provider failures, by their effect on the next attempt."""

    RATE_LIMITED = "rate-limited"
    """Later, and slower."""
    TRANSIENT = "transient"
    """Later."""
    REJECTED = "rejected"
    """Never: the provider refuses this request."""
    MODEL_UNKNOWN = "model-unknown"
    """Never: the provider has no such model."""
    OTHER_API = "other-api"
    """Never: the provider serves the model over another API than that of the provider's kind."""
    UNAUTHENTICATED = "unauthenticated"
    """Never: the provider refuses our credentials."""
    CREDIT_EXHAUSTED = "credit-exhausted"
    """Never: the account has no credit left."""
    ADDRESS_INVALID = "address-invalid"
    """Never: the address has no such path, redirects elsewhere, or its certificate is not trusted."""
    CONTEXT_LENGTH = "context-length"
    """Never: the request is longer than the model's context window."""


class ProviderError(Exception):
    """A provider did not answer.

    Attributes:
        kind: The effect on the next attempt.
        provider: The provider's name.
        status: The HTTP status, 0 where there was none.
        retry_after: The wait that the provider requests, in seconds, if any.
        settled: Whether it is certain that nothing is charged: the request was refused, or never sent.
            Otherwise it may have been answered, and the answer lost.
        quotas: The limits that the response states, if any.
    """

    def __init__(
        self,
        kind: FailureKind,
        provider: str,
        message: str,
        *,
        status: int = 0,
        retry_after: float | None = None,
        settled: bool = False,
        quotas: Quotas | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.settled = settled
        self.quotas = quotas

    @property
    def passes(self) -> bool:
        """Whether a later attempt may succeed."""
        return self.kind in {FailureKind.RATE_LIMITED, FailureKind.TRANSIENT}


class DeadlinePassedError(Exception):
    """The time for the answer was over before anything went wrong."""


class BatchPendingError(Exception):
    """The call waits for a batch.

    Attributes:
        provider: The provider's name.
        retry_after: When to ask again, in seconds.
    """

    def __init__(self, provider: str, retry_after: float) -> None:
        super().__init__("the call waits for a batch of its provider")
        self.provider = provider
        self.retry_after = retry_after


class ModelUnknownError(Exception):
    """No model can be chosen; the message says what to do."""

    def __init__(self, model: str, message: str) -> None:
        super().__init__(message)
        self.model = model


class NotRecordedError(Exception):
    """A replayed file holds no answer to the call."""

    def __init__(self, provider: str, fingerprint: str) -> None:
        super().__init__(
            f"provider {provider!r} replays a recording, which has no completion with fingerprint "
            f"{fingerprint}; record it, or name a provider to record from"
        )
        self.provider = provider
        self.fingerprint = fingerprint
