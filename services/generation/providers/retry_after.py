"""How long a provider asks to wait."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_LONGEST = 86_400.0


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Reads ``retry-after-ms`` and ``Retry-After`` (RFC 9110, section 10.2.3), in seconds or as a date.

    Args:
        headers: The response's headers, whose names are looked up without regard to case.
        now: The time in seconds since 1970, for dates. None: the machine's.

    Returns:
        Seconds from now, from 0 to a day; None where nothing usable is said.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return _bounded(seconds)
    try:
        moment = parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return _bounded(moment - (time.time() if now is None else now))


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), _LONGEST)
