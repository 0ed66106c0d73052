"""Responses that are no answer: their faults, and the limits and waits that providers state.

Limits stand in the headers of every response, and in the body of a refusal. Headers are read in the spellings
of OpenAI and those that follow it (``x-ratelimit-remaining-requests``, with ``reset`` as a duration: "6m0s",
"20ms", "7.66s"), of Anthropic (``anthropic-ratelimit-requests-remaining``, with ``reset`` as a time of RFC
3339), and without a dimension (``x-ratelimit-remaining``, with ``reset`` in seconds from now or since 1970).
Of bodies ``retryDelay`` of google.rpc.RetryInfo is read. Sentences of a message ("Please try again in 6ms")
are not: they may quote the request, and a wait holds for all callers.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from services.generation.calls import FailureKind
from services.generation.limits.stated_quotas import Quota, Quotas
from services.generation.providers.transport import Response

_LONGEST = 86_400.0
"""The longest wait, in seconds: a day."""


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Reads ``retry-after-ms`` and ``Retry-After`` (RFC 9110, section 10.2.3), in seconds or as a date.

    Args:
        headers: The response's headers, whose names are looked up without regard to case.
        now: The time in seconds since 1970, for dates. None: the machine's.

    Returns:
        Seconds from now, from 0 to a day; None where nothing usable is said.
    """
    milliseconds = finite_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return bounded_wait(milliseconds / 1000)
    value = headers.get("retry-after")
    seconds = finite_number(value)
    if seconds is not None:
        return bounded_wait(seconds)
    try:
        moment = parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return bounded_wait(moment - (time.time() if now is None else now))


def finite_number(text: str | None) -> float | None:
    """The number in a header; None where it has none, or one that is not finite."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def bounded_wait(seconds: float) -> float:
    """A wait of at least 0 seconds and at most a day."""
    return min(max(0.0, seconds), _LONGEST)


_MARK = "ratelimit"
_PATTERNS = {
    "requests": (
        "x-ratelimit-{}-requests",
        "anthropic-ratelimit-requests-{}",
        "x-ratelimit-{}-req-minute",
        "x-ratelimit-{}",
        "ratelimit-{}",
    ),
    "tokens": ("x-ratelimit-{}-tokens", "anthropic-ratelimit-tokens-{}", "x-ratelimit-{}-tokens-minute"),
}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SINCE_1970 = 1e9
"""A number of seconds above this is a time, not a duration."""


def read_quotas(headers: Mapping[str, str], now: float | None = None) -> Quotas | None:
    """Reads the quotas that a response states.

    Args:
        headers: The response's headers, whose names are looked up without regard to case.
        now: The time in seconds since 1970. None: the machine's.

    Returns:
        The quotas with usable numbers. None: there are none.
    """
    if not any(_MARK in name.lower() for name in headers):
        return None
    now = time.time() if now is None else now
    requests, tokens = (_quota(headers, patterns, now) for patterns in _PATTERNS.values())
    return None if requests is None and tokens is None else Quotas(requests, tokens)


def _quota(headers: Mapping[str, str], patterns: tuple[str, ...], now: float) -> Quota | None:
    for pattern in patterns:
        remaining = finite_number(headers.get(pattern.format("remaining")))
        if remaining is not None and remaining >= 0:
            limit = finite_number(headers.get(pattern.format("limit")))
            reset = _reset(headers.get(pattern.format("reset")), now)
            return Quota(remaining, limit if limit and limit >= remaining else None, reset)
    return None


def _reset(text: str | None, now: float) -> float | None:
    if not text:
        return None
    number = finite_number(text)
    if number is not None:
        return bounded_wait(number - now if number > _SINCE_1970 else number)
    seconds = duration(text)
    if seconds is not None:
        return bounded_wait(seconds)
    try:
        moment = datetime.fromisoformat(text.strip())
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return bounded_wait(seconds - now)


def duration(text: str) -> float | None:
    """Reads a duration such as "1m30s", "6ms" or "7.66s", in seconds. None: it is none."""
    text = text.strip()
    if len(text) > 60 or not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def retry_delay(error: Mapping[str, Any]) -> float | None:
    """Reads how long a refusal asks to wait, in seconds, from its body. None: it does not say."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        seconds = duration(delay) if isinstance(delay, str) else None
        if seconds is not None:
            return bounded_wait(seconds)
    return None


_TRANSIENT_STATUSES = frozenset({408, 409, 425})
_GATEWAY_STATUSES = frozenset({408, 502, 504, 524})
"""Something between gave up; the model may have gone on."""
_RATE_LIMIT_STATUSES = frozenset({429, 529})
_NO_PARAMETER_STATUSES = frozenset({401, 402, 408, 413, 425, 429, 502, 503, 504, 524, 529})
_MAX_SAID = 2000

_CREDIT = re.compile(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|credit balance is too low|requires more credits"
    r"|payment required|billing_hard_limit|out of credits?|billing_not_active|no credits",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context[_ ](?:length|window|size|limit)|prompt is too long|(?:input|prompt) (?:is|was) too long"
    r"|too many (?:input )?tokens"
    r"|maximum (?:input )?(?:context|sequence|prompt|model) ?(?:len|length)?\b.*token"
    r"|token count .*exceeds|reduce the length|longer than the model|model_max_prompt_tokens_exceeded"
    r"|`?inputs`? (?:tokens|must have less than)|string_above_max_length"
    r"|exceeds the (?:model'?s )?max(?:imum)? (?:input )?(?:number of )?tokens"
    r"|input length .*exceeds?|requested tokens .*exceed",
    re.IGNORECASE | re.DOTALL,
)
_FILTERED = re.compile(
    r"content[_ ]?(?:filter|policy|management)|responsibleai|data_inspection_failed|inappropriate content"
    r"|content exists risk|requires moderation|was flagged|prohibited[_ ](?:content|use)|usage polic(?:y|ies)"
    r"|safety (?:system|filter|polic)|moderation_blocked|guardrail",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"(?:api[_ ]?key|token) (?:is )?(?:not valid|invalid|expired|not found)|invalid api[_ ]?key"
    r"|no connected db",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"model_not_found|deploymentnotfound|model[_ ]not[_ ](?:found|exist|supported)|not a valid model"
    r"|unknown model|invalid model|no such model|no endpoints found for|model_not_available|unknown_model"
    r"|model_decommissioned|model identifier is invalid"
    r"|(?:models?|deployment)\b.{0,200}?(?:not found|does ?n[o']t exist|not exist|not available|is not loaded"
    r"|has been (?:decommissioned|deprecated|removed|shut ?down)|not served|is not supported"
    r"|could not be found|not have access)",
    re.IGNORECASE | re.DOTALL,
)
_NAMES_MODEL = re.compile(r"\b(?:models?|deployment)\b", re.IGNORECASE)
_OTHER_API = re.compile(
    r"only (?:supported|available) (?:in|with|through|via) (?:the )?/?v1/"
    r"|(?:not supported|not available) (?:in|with|by|on) (?:the )?/?(?:v1/)?chat[ /]completions"
    r"|not a chat model|operationnotsupported"
    r"|use the /?(?:v1/)?(?:responses|completions|messages) (?:api|endpoint)",
    re.IGNORECASE,
)
_NAMED_API = re.compile(
    r"(?:only (?:supported|available) (?:in|with|through|via)|use) (?:the )?/?(?:v1/)?"
    r"(responses|messages|chat[ /]completions)",
    re.IGNORECASE,
)
_KINDS = {
    "responses": "openai",
    "messages": "anthropic",
    "chat/completions": "chat",
    "chat completions": "chat",
}
"""The kinds of provider by the names of their APIs."""
_PATH = re.compile(
    r"\W*(?:40[45]\W*)?(?:not[_ ]found|page not found|cannot post .*|method not allowed|resource not found"
    r"|no route.*|unknown (?:endpoint|url|path).*|invalid url.*|unexpected endpoint.*|file not found"
    r"|route not found.*|the requested url.*|nothing said|)\W*",
    re.IGNORECASE | re.DOTALL,
)
_TAGS = re.compile(r"<(?:script|style).*?</(?:script|style)>|<[^>]*>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response that is no answer."""

    status: int
    """The HTTP status; the status that an error within HTTP 200 states."""
    code: str
    """The endpoint's own name of the fault. Empty: it gives none."""
    params: tuple[str, ...]
    """The members of the request that it says are at fault."""
    said: str
    """Its own words."""
    retry_after: float | None = None
    """How many seconds it asks to wait, if it says."""
    structured: bool = True
    """Whether the body is JSON. A page of text means that something else answers at the address."""
    quotas: Quotas | None = None
    """The limits that it states, if any."""

    @classmethod
    def read(cls, response: Response) -> Refusal:
        """Reads any response."""
        try:
            body = json.loads(response.content)
        except (ValueError, RecursionError):
            body = None
        return cls.of_error(
            body if body is not None else _plain(response.content),
            response.status,
            retry_after=retry_after(response.headers),
            quotas=read_quotas(response.headers),
        )

    @classmethod
    def of_error(
        cls,
        error: Any,
        status: int,
        *,
        retry_after: float | None = None,
        quotas: Quotas | None = None,
    ) -> Refusal:
        """Reads the fault from a body, or from its member ``error``."""
        members = _members(error)
        codes = [str(members[name]) for name in ("code", "type", "status", "error_type") if members.get(name)]
        stated = members.get("code")
        if status == 200:
            status = stated if isinstance(stated, int) and 400 <= stated < 600 else _stated_status(stated)
        return cls(
            status,
            " ".join(dict.fromkeys(codes)),
            tuple(dict.fromkeys(_params(members))),
            " ".join(dict.fromkeys(_words(error)))[:_MAX_SAID] or "nothing said",
            retry_after if retry_after is not None else retry_delay(members),
            quotas=quotas,
            structured=not isinstance(error, str),
        )

    @property
    def kind(self) -> FailureKind:
        """What it means for the next attempt."""
        said = f"{self.code} {self.said}"
        if self.status == 402 or _CREDIT.search(said):
            return FailureKind.CREDIT_EXHAUSTED
        if self.status in _RATE_LIMIT_STATUSES:
            return FailureKind.RATE_LIMITED
        if self.status == 413 or (self.status not in {401, 403, 404} and _CONTEXT.search(said)):
            return FailureKind.CONTEXT_LENGTH
        if self.status in _TRANSIENT_STATUSES or (self.status >= 500 and self.status != 501):
            return FailureKind.TRANSIENT
        if self.status == 401 or (self.status < 500 and _BAD_KEY.search(said)):
            return FailureKind.UNAUTHENTICATED
        if self.status < 500 and _OTHER_API.search(said):
            return FailureKind.OTHER_API
        if _MODEL.search(said) or (self.status == 404 and self.structured and _NAMES_MODEL.search(said)):
            return FailureKind.MODEL_UNKNOWN
        if self.status == 403:
            return FailureKind.UNAUTHENTICATED
        if self.status in {404, 405} and (not self.structured or _PATH.fullmatch(self.said)):
            return FailureKind.ADDRESS_INVALID
        if 300 <= self.status < 400:
            return FailureKind.ADDRESS_INVALID
        return FailureKind.REJECTED

    @property
    def other_kind(self) -> str:
        """The kind of provider that offers the model, of a refusal that says so. Empty: it says none."""
        if self.kind is not FailureKind.OTHER_API:
            return ""
        named = _NAMED_API.search(self.said)
        return _KINDS[named[1].lower()] if named else "openai"

    @property
    def settled(self) -> bool:
        """Whether it is certain that nothing is charged."""
        return self.status not in _GATEWAY_STATUSES

    @property
    def filtered(self) -> bool:
        """Whether the endpoint's content filter refused the request."""
        return self.status in {400, 403, 422, 451} and bool(_FILTERED.search(f"{self.code} {self.said}"))

    @property
    def may_name_parameter(self) -> bool:
        """Whether it may be about a parameter that the endpoint does not take."""
        if self.status in _NO_PARAMETER_STATUSES:
            return False
        # Some servers answer an unknown parameter with an internal error.
        return self.status < 500 or bool(_INTERNAL.search(f"{self.code} {self.said}"))


_INTERNAL = re.compile(
    r"response_format|json_schema|grammar|unexpected keyword|not (?:yet )?(?:supported|implemented)"
    r"|unsupported|does ?n[o']t support|invalid (?:parameter|value|argument)|only user and assistant"
    r"|must alternate|system role|logprobs",
    re.IGNORECASE,
)


def _members(error: Any) -> Mapping[str, Any]:
    """The members that describe the fault: those of ``error`` where the common servers put them, or all."""
    if isinstance(error, list):
        error = error[0] if error else {}
    if not isinstance(error, dict):
        return {}
    inner = error.get("error")
    return {**error, **inner} if isinstance(inner, dict) else error


def _stated_status(code: Any) -> int:
    """The HTTP status that a textual code means."""
    text = str(code or "").lower()
    if text.isdigit() and 400 <= int(text) < 600:
        return int(text)
    if "rate" in text and "limit" in text:
        return 429
    if any(word in text for word in ("invalid", "unsupported", "not_found", "context", "filter", "policy")):
        return 400
    return 502


_WORD_MEMBERS = (
    "message",
    "msg",
    "detail",
    "error",
    "errors",
    "raw",
    "metadata",
    "Message",
    "title",
    "description",
)


def _words(error: Any, depth: int = 10) -> Iterator[str]:
    """What an error says, wherever the common servers put it."""
    if not depth:
        return
    if isinstance(error, str):
        text = error.strip()
        if text.startswith(("{", "[")):
            try:
                parsed = json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                yield from _words(parsed, depth - 1)
                return
        if text:
            yield text
    elif isinstance(error, list):
        for item in error[:10]:
            yield from _words(item, depth - 1)
    elif isinstance(error, dict):
        location = error.get("loc")
        if isinstance(location, list):
            yield ".".join(map(str, location)) + ":"
        for name in _WORD_MEMBERS:
            if name in error:
                yield from _words(error[name], depth - 1)


def _params(error: Any, depth: int = 10) -> Iterator[str]:
    """The members of the request that an error names as such."""
    if not depth:
        return
    if isinstance(error, str) and error.lstrip().startswith(("{", "[")):
        try:
            error = json.loads(error)
        except (ValueError, RecursionError):
            return
    if isinstance(error, list):
        for item in error[:10]:
            yield from _params(item, depth - 1)
    elif isinstance(error, dict):
        if isinstance(error.get("param"), str) and error["param"]:
            yield error["param"]
        location = error.get("loc")
        if isinstance(location, list):
            yield ".".join(map(str, location))
        for name in ("error", "detail", "message", "errors"):
            yield from _params(error.get(name), depth - 1)


def _plain(content: bytes) -> str:
    """The words of a body that is no JSON, without markup."""
    text = content[: 4 * _MAX_SAID].decode(errors="replace")
    return " ".join(_TAGS.sub(" ", text).split())
