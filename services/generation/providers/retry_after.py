"""How long a provider asks to wait."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

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
