from __future__ import annotations

import pickle

import pytest

from gateway.judges import quarantine
from gateway.judges.quarantine import MAX_CHECK_SECONDS, Quarantine, QuarantineRules
from tests.support.clocks import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(quarantine, "time", clock)
    return clock


RULES = QuarantineRules(breaches=3, window_seconds=60, check_seconds=30)


def reason(judge: Quarantine) -> str:
    return judge.reason("a")


def due(judge: Quarantine) -> bool:
    return judge.is_due


def record(judge: Quarantine, breaches: int, sound: int = 0) -> None:
    for _ in range(sound):
        judge.record("", "a")
    for _ in range(breaches):
        judge.record("it passes what it faults", "a")


def test_breaches_within_the_window_count(clock: Clock) -> None:
    judge = Quarantine("critic=a", RULES)
    record(judge, 2)
    clock.now += 61.5
    record(judge, 2)
    assert not reason(judge)
    record(judge, 1)
    assert reason(judge) == (
        "3 of its last 3 answers broke the contract, the last one: it passes what it faults"
    )


def test_sound_answers_take_memory_for_the_window_alone(clock: Clock) -> None:
    judge = Quarantine("critic=a", RULES)
    sizes = []
    for _ in range(1000):
        clock.now += 1
        record(judge, 0, sound=1)
        sizes.append(len(pickle.dumps(judge)))
    assert max(sizes[100:]) < 2 * max(sizes[:100])


def test_a_judge_that_is_mostly_sound_is_kept(clock: Clock) -> None:
    judge = Quarantine("critic=a", RULES)
    record(judge, 5, sound=5)
    assert not reason(judge)
    record(judge, 1)
    assert reason(judge)


def test_checks_become_rarer_until_one_succeeds(clock: Clock) -> None:
    judge = Quarantine("critic=a", RULES)
    record(judge, 3)
    assert not due(judge)
    clock.now += 30
    assert due(judge)
    judge.fail_check("it is as before")
    clock.now += 59
    assert not due(judge)
    clock.now += 1
    assert due(judge)
    for _ in range(20):
        judge.fail_check("it is as before")
    clock.now += MAX_CHECK_SECONDS
    assert due(judge)
    judge.release()
    assert not reason(judge)
    assert not due(judge)
    record(judge, 2)
    assert not reason(judge)


def test_it_can_be_switched_off(clock: Clock) -> None:
    judge = Quarantine("critic=a", QuarantineRules(breaches=0))
    record(judge, 100)
    assert not reason(judge)


def test_the_texts_of_one_tenant_exclude_a_judge_for_that_tenant_until_a_check_fails(clock: Clock) -> None:
    judge = Quarantine("critic=a", RULES)
    record(judge, 3)
    assert reason(judge)
    assert not judge.reason("b")
    judge.record("", "b")
    clock.now += 30
    assert due(judge)
    judge.fail_check("UNAVAILABLE: ipv4:10.1.2.3:50051")
    assert judge.reason("b") == "it does not pass the check of its contract"
    judge.release()
    assert not reason(judge)
    assert not judge.reason("b")


def test_a_judge_that_fails_two_tenants_is_excluded_for_all(clock: Clock) -> None:
    judge = Quarantine("critic=a", RULES)
    for tenant in ("a", "b"):
        for _ in range(3):
            judge.record("a secret", tenant)
    assert judge.reason("c") == "its answers to several tenants broke the contract"
