"""How long a provider asks to wait."""

from __future__ import annotations

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generation.providers.refusals import retry_after

NOW = 1_791_800_000.0  # Mon, 12 Oct 2026 10:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "-3"}, 0),
        ({"Retry-After": "1e99"}, 86_400),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "Mon, 99999999999999999999 Oct 2026 10:13:30 GMT"}, None),
        ({"Retry-After": "Mon, 01 Jan 0001 00:00:00 +2359"}, 0),
        ({"Retry-After": "Mon, 12 Oct 2026 10:13:30 GMT"}, 10),
        ({"Retry-After": "Mon, 12 Oct 2026 10:13:10 GMT"}, 0),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"retry-after-ms": "x", "Retry-After": "1"}, 1),
    ],
)
def test_seconds_milliseconds_and_dates_are_understood(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(httpx2.Headers(headers), NOW) == seconds


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_nothing_that_a_provider_says_breaks_it(milliseconds: str, value: str) -> None:
    seconds = retry_after({"retry-after-ms": milliseconds, "retry-after": value})
    assert seconds is None or 0 <= seconds <= 86_400
