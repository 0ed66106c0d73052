"""The limits that providers state: in the headers of every response, and in the body of a refusal.

Headers are read in the spellings of OpenAI and those that follow it (``x-ratelimit-remaining-requests``, with
``reset`` as a duration: "6m0s", "20ms", "7.66s"), of Anthropic (``anthropic-ratelimit-requests-remaining``,
with ``reset`` as a time of RFC 3339), and without a dimension (``x-ratelimit-remaining``, with ``reset`` in
seconds from now or since 1970). Of bodies ``retryDelay`` of google.rpc.RetryInfo is read. Sentences of a
message ("Please try again in 6ms") are not: they may quote the request, and a wait holds for all callers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from services.generation.limits.stated_quotas import Quota, Quotas
from services.generation.providers.retry_after import bounded_wait, finite_number

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
