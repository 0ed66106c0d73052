"""The limits that providers state, in the spellings of the common ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generation.limits.stated_quotas import Quota, Quotas
from services.generation.providers.refusals import duration, read_quotas, retry_delay

NOW = 1_791_800_000.0  # 2026-10-12T10:13:20Z


@pytest.mark.parametrize(
    ("headers", "quotas"),
    [
        ({}, None),
        ({"content-type": "application/json"}, None),
        (
            {
                "x-ratelimit-limit-requests": "5000",
                "x-ratelimit-remaining-requests": "4999",
                "x-ratelimit-reset-requests": "12ms",
                "x-ratelimit-limit-tokens": "160000",
                "x-ratelimit-remaining-tokens": "159976",
                "x-ratelimit-reset-tokens": "9ms",
            },
            Quotas(Quota(4999, 5000, 0.012), Quota(159976, 160000, 0.009)),
        ),
        (
            {
                "x-ratelimit-limit-requests": "14400",
                "x-ratelimit-remaining-requests": "14370",
                "x-ratelimit-reset-requests": "2m59.56s",
            },
            Quotas(Quota(14370, 14400, 179.56), None),
        ),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-10-12T10:14:20Z",
                "anthropic-ratelimit-tokens-limit": "40000",
                "anthropic-ratelimit-tokens-remaining": "39000",
                "anthropic-ratelimit-tokens-reset": "2026-10-12T10:13:21+00:00",
            },
            Quotas(Quota(0, 50, 60), Quota(39000, 40000, 1)),
        ),
        (
            {
                "X-RateLimit-Limit": "20",
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": str(int(NOW + 30) * 1),
            },
            Quotas(Quota(0, 20, 30), None),
        ),
        (
            {"ratelimit-limit": "20", "ratelimit-remaining": "3", "ratelimit-reset": "7"},
            Quotas(Quota(3, 20, 7), None),
        ),
        ({"x-ratelimit-remaining-requests": "3"}, Quotas(Quota(3), None)),
        ({"x-ratelimit-remaining-requests": "-1"}, None),
        ({"x-ratelimit-remaining-requests": "nan"}, None),
        ({"x-ratelimit-remaining-requests": "many"}, None),
        (
            {
                "x-ratelimit-remaining-requests": "9",
                "x-ratelimit-limit-requests": "3",
                "x-ratelimit-reset-requests": "soon",
            },
            Quotas(Quota(9), None),
        ),
    ],
)
def test_quotas_are_read(headers: dict[str, str], quotas: Quotas | None) -> None:
    lower = {name.lower(): value for name, value in headers.items()}
    read = read_quotas(lower, NOW)
    if quotas is None or read is None:
        assert read is quotas
        return
    for own, expected in ((read.requests, quotas.requests), (read.tokens, quotas.tokens)):
        assert (own is None) == (expected is None)
        if own is not None and expected is not None:
            assert (own.remaining, own.limit) == (expected.remaining, expected.limit)
            assert own.reset == (None if expected.reset is None else pytest.approx(expected.reset))


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ({}, None),
        ({"message": "slow down"}, None),
        # A message may quote the request.
        ({"message": "Rate limit reached. Please try again in 6ms. Visit ..."}, None),
        ({"message": "Please retry after 7 seconds."}, None),
        (
            {
                "message": "Resource has been exhausted",
                "details": [
                    {"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
                    {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"},
                ],
            },
            17,
        ),
        ({"details": "none", "message": 3}, None),
        ({"details": [{"retryDelay": 17}]}, None),
    ],
)
def test_delays_in_bodies_are_read(error: dict[str, Any], seconds: float | None) -> None:
    assert retry_delay(error) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6m0s", 360), ("1h", 3600), ("1d2h", 93_600), ("500ms", 0.5), ("", None), ("5", None), ("-1s", None)],
)
def test_durations_are_read(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
def test_nothing_that_a_provider_states_breaks_it(limit: str, remaining: str, reset: str) -> None:
    read = read_quotas(
        {
            "x-ratelimit-limit-requests": limit,
            "x-ratelimit-remaining-requests": remaining,
            "x-ratelimit-reset-requests": reset,
        }
    )
    assert read is None or (read.requests is not None and read.requests.remaining >= 0)
    assert duration(reset) is None or duration(reset) >= 0  # type: ignore[operator]
