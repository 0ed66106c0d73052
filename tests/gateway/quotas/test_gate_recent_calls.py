"""The tenants that made the last calls."""

from __future__ import annotations

import time

import pytest

from gateway.quotas.gate import RECENT_SECONDS, RecentCalls


def test_calls_of_others_count_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    calls = RecentCalls()
    assert not calls.has_others("a")
    calls.note("a")
    assert not calls.has_others("a")
    assert calls.has_others("b")
    calls.note("b")
    calls.note("b")
    assert calls.has_others("a")
    assert calls.has_others("b")
    now = RECENT_SECONDS / 2
    calls.note("a")
    now = RECENT_SECONDS
    assert calls.has_others("b")
    assert not calls.has_others("a")
