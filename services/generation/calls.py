"""What is asked of a model and until when, what comes back, and what goes wrong: the nouns of the service.

Nothing of it changes once it is made, but for what ``Answer`` says. Most of it is not frozen all the same:
members of frozen dataclasses are set one by one through ``object.__setattr__``, which took 3 % of a call.
"""

from __future__ import annotations

import math
import time
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pydantic_core import to_json

from dramaturg.service import context
from services.generation.answers.forms import JsonForm
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


class Deadline(Protocol):
    """A moment that may move later while one waits for it.

    Attributes:
        failure: The latest failure of the work under this deadline, set by the work. It is raised in place of
            DeadlinePassedError when the deadline passes.
    """

    failure: Exception | None

    def remaining(self) -> float:
        """Seconds until then; negative once it has passed, infinite where there is none."""


class Until:
    """A fixed moment, in seconds from now. None: never."""

    __slots__ = ("_at", "_clock", "failure")

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.failure: Exception | None = None
        self._at = math.inf if seconds is None else clock() + seconds

    def remaining(self) -> float:
        """Seconds until then."""
        return self._at - self._clock()


def latest(deadlines: Iterable[Deadline]) -> float:
    """Seconds until the last of several deadlines; 0 where there is none left."""
    return max([deadline.remaining() for deadline in deadlines], default=0.0)


def timeout(deadline: Deadline, limit: float = math.inf) -> float | None:
    """The remaining seconds, at most ``limit``, for asyncio timeouts: never negative, None for no limit."""
    seconds = min(limit, deadline.remaining())
    return None if math.isinf(seconds) else max(0.0, seconds)


@dataclass(frozen=True, slots=True)
class DeadlinePolicy:
    """The time that a request gets.

    Attributes:
        maximum: Seconds for a request without a deadline.
        reserve: Seconds kept of a deadline, to still say why a request failed.
    """

    maximum: float
    reserve: float

    def deadline(self) -> Deadline:
        """The deadline of the request being served."""
        remaining = context.remaining()
        return Until(self.maximum if remaining is None else remaining - self.reserve)


class Role(StrEnum):
    """The roles of messages, as spelt in the OpenAI protocol."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class FinishReason(StrEnum):
    """Why a model stopped."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    FILTER = "filter"
    """The provider's content filter stopped the request or the answer."""
    TOOL_CALL = "tool-call"
    INTERRUPTED = "interrupted"
    """The provider ended the answer for a reason that is not a normal end."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image."""

    data: bytes = field(repr=False)
    media_type: str
    """Told by its first bytes, e.g. "image/png"."""

    @property
    def base64(self) -> str:
        """The bytes, as APIs of JSON take them."""
        return b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """The image as a URL (RFC 2397)."""
        return f"data:{self.media_type};base64,{self.base64}"


@dataclass(slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str
    parts: tuple[str | Image, ...] = ()
    """What follows the text."""
    quoted: bytes = field(init=False, repr=False, compare=False)
    """The text as JSON. It is written once: bodies and fingerprints hold it alike."""

    def __post_init__(self) -> None:
        self.quoted = to_json(self.text)

    @property
    def contents(self) -> tuple[str | Image, ...]:
        """Its texts and images; the text alone where it has no parts."""
        return (self.text, *self.parts) if self.text or not self.parts else self.parts

    @property
    def texts(self) -> str:
        """Its texts, for APIs and models that take one."""
        return "\n\n".join(one for one in self.contents if isinstance(one, str))

    @property
    def images(self) -> tuple[Image, ...]:
        """Its images."""
        return tuple(one for one in self.parts if isinstance(one, Image))

    def joined(self, other: Message) -> Message:
        """This message and the next one as one, of this role."""
        if self.parts:
            return Message(self.role, self.text, (*self.parts, *other.contents))
        return Message(self.role, f"{self.text}\n\n{other.text}", other.parts)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a model draws its tokens. None leaves the provider's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str = ""


@dataclass(slots=True)
class Call:
    """One request to one model: all inputs of its answer, and the tenant."""

    model: str
    """The model as its provider names it."""
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    json_form: JsonForm | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    repeat_index: int = 0
    """Which of several independent answers this is, from 0."""
    ask_index: int = 0
    """How often the very same question was asked before for this answer, because it came back empty."""
    omit: frozenset[str] = frozenset()
    """The parameters that are never sent, by name (see [providers.parameters])."""
    owner: str = ""
    """The tenant whose the answer is, kept or on its way: no other is given it. Empty: no tenant's."""
    batch_until: float | None = field(default=None, compare=False)
    """Until when the call may wait for a batch, in seconds since 1970. None: it is made live."""
    fingerprints: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Its fingerprints by endpoint, as far as they were computed (see [fingerprints])."""

    def bought_for(self, owner: str, model: str) -> Call:
        """The same question, of an owner to a model."""
        # Every call comes by here, and ``replace`` takes twice the time.
        return Call(
            model,
            self.messages,
            self.sampling,
            self.json_form,
            self.logprobs,
            self.top_logprobs,
            self.repeat_index,
            self.ask_index,
            self.omit,
            owner,
            self.batch_until,
        )


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have stood instead, with the natural logarithm of its probability."""

    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an answer, with the natural logarithm of its probability, at most 0."""

    text: str
    logprob: float
    alternatives: tuple[Alternative, ...] = ()


@dataclass(slots=True)
class TokenCounts:
    """The token counts of a provider; ``cached_prompt`` are part of ``prompt``."""

    prompt: int
    completion: int
    """Reasoning included."""
    cached_prompt: int = 0
    reasoning: int = 0
    """Part of ``completion``."""


@dataclass(slots=True)
class Answer:
    """The answer of a provider to one call.

    Who passes an answer on notes the facts of its purchase in it, the last three members. What is answered
    stays as it came.
    """

    text: str
    """Without reasoning."""
    finish: FinishReason = FinishReason.STOP
    refusal: str = ""
    """The refusal of a model, where the provider returns it separately from the text."""
    reasoning: str = ""
    """The reasoning, as far as the provider shows it."""
    detail: str = ""
    """Why the model stopped, in the provider's own words, where it is not a normal end."""
    notes: tuple[str, ...] = ()
    """Anomalies of the response that do not affect the text."""
    omitted: tuple[str, ...] = ()
    """The parameters of the call that the request omitted, by name."""
    model: str = ""
    """The model that the provider says answered."""
    counts: TokenCounts | None = None
    """None: the provider does not say."""
    tokens: tuple[Token, ...] = ()
    latency: float = 0.0
    """How long the provider took, in seconds."""
    retried: int = field(default=0, compare=False)
    """Attempts that failed before this answer came. A fact of the purchase, not of the answer."""
    replayed: bool = field(default=False, compare=False)
    """Whether it was played back from a recording, or its cost was told before, and so cost nothing."""
    batched: bool = field(default=False, compare=False)
    """Whether a batch answered it, at the price of batches."""
    quotas: Quotas | None = field(default=None, compare=False)
    """The limits that the provider states with it."""
    call_number: int | None = field(default=None, compare=False)
    """The number under which the ledger noted that the call was sent. None: it did not."""


@dataclass(frozen=True, slots=True)
class UsageEstimate:
    """The estimated consumption of a call whose answer states no token counts."""

    tokens: int
    """Sent and received."""
    cost: float | None = None
    """In US dollars. None: the price is not known."""


@dataclass(slots=True)
class Purchase:
    """An answer with its source and its current cost."""

    fingerprint: str
    provider: str
    requested_model: str
    answer: Answer
    cached: bool = False
    """Whether the answer is stored and not charged again."""
    cost: float | None = None
    """In US dollars, this time. None: the price or the token counts are not known."""
    estimate: UsageEstimate | None = None
    """None: the answer states token counts, or is not charged."""


class Status(StrEnum):
    """Whether a completion is of use, and if not, why."""

    OK = "ok"
    UNPARSABLE = "unparsable"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    TOOL_CALL = "tool-call"
    INTERRUPTED = "interrupted"
    FILTERED = "filtered"


@dataclass(slots=True)
class Completion:
    """The outcome of a request: the last answer as read, and every call that led to it."""

    status: Status
    purchases: tuple[Purchase, ...]
    json: str | None = None
    """Canonical JSON that fits the form; None without a form or a usable answer."""
    repairs: tuple[str, ...] = ()
    parse_error: str = ""
    detail: str = ""
    """The reason why the answer is unusable. Empty: it is usable."""

    @property
    def text(self) -> str:
        """The last answer, unchanged."""
        return self.answer.text

    @property
    def answer(self) -> Answer:
        """The last answer."""
        return self.purchases[-1].answer

    @property
    def fingerprint(self) -> str:
        """The content address of the request: its first call's."""
        return self.purchases[0].fingerprint
