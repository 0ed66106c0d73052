"""How many calls to a model are under way at once: what the window learns from answers and refusals."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generation.limits.window import INITIAL, Window, WindowBounds


class Model:
    """A model whose window is always used, at a time that is set by hand."""

    def __init__(self, bounds: WindowBounds | None = None) -> None:
        self.window = Window(bounds or WindowBounds())
        self.now = 0.0
        self.last = 0
        self.calls: deque[tuple[int, float]] = deque()
        """The calls under way, with the moments in which they were sent."""

    def fill(self) -> int:
        """Sends all calls that may go. Returns how many."""
        sent = 0
        while self.window.under_way < self.window.size and not self.window.delay(self.now):
            self.last += 1
            self.window.sent(self.now)
            self.calls.append((self.last, self.now))
            sent += 1
        return sent

    def answer(self, count: int, *, waiting: bool = True) -> None:
        """Answers the longest calls."""
        for _ in range(count):
            number, sent = self.calls.popleft()
            self.window.ended(self.now)
            self.window.acknowledged(self.now, sent, number, waiting=waiting)
            self.window.answered(waiting=waiting)

    def refuse(self, count: int = 1, retry_after: float | None = None) -> None:
        """Refuses the latest calls."""
        for _ in range(count):
            number, sent = self.calls.pop()
            self.window.ended(self.now)
            self.window.refused(self.now, sent, number, self.last, retry_after)

    def time_out(self, count: int, answered: int) -> None:
        """Ends the latest calls without an answer in time."""
        for _ in range(count):
            number, _ = self.calls.pop()
            self.window.ended(self.now)
            self.window.timed_out(number, answered, self.last)

    def serve(self, most: int, answers: int) -> int:
        """Serves this many calls at once, until so many are answered. Returns how many were refused."""
        refused = 0
        while answers > 0:
            self.fill()
            above = max(0, len(self.calls) - most)
            self.refuse(above)
            refused += above
            self.now += 1
            answers -= len(self.calls)
            self.answer(len(self.calls))
        return refused

    def close(self) -> None:
        """Refuses single calls until the window closes."""
        while not self.window.delay(self.now):
            self.fill()
            self.refuse(len(self.calls))


def test_few_calls_are_sent_before_any_is_accepted_and_then_twice_as_many_a_round() -> None:
    model, sent = Model(), []
    for _ in range(4):
        sent.append(model.fill())
        model.answer(len(model.calls))
    assert sent == [INITIAL, 2 * INITIAL, 4 * INITIAL, 8 * INITIAL]


def test_calls_that_are_not_refused_are_accepted_up_to_the_start() -> None:
    model = Model(WindowBounds(start=40))
    for _ in range(10):
        model.fill()
        for number, sent in model.calls:
            model.window.acknowledged(model.now, sent, number, waiting=True)
    assert model.window.size == 40
    model.answer(1)
    for number, sent in model.calls:
        model.window.acknowledged(model.now, sent, number, waiting=True)
    assert model.window.size > 40


def test_a_window_that_is_not_used_does_not_grow() -> None:
    model = Model()
    for _ in range(10):
        model.fill()
        model.answer(len(model.calls), waiting=False)
    assert model.window.size == INITIAL


def test_calls_refused_together_leave_the_number_that_is_served() -> None:
    model = Model()
    model.fill()
    model.refuse(INITIAL - 4)
    assert model.window.size == 4
    assert model.window.delay(model.now) == 0


@pytest.mark.parametrize("most", [1, 2, 4, 12, 40])
def test_a_number_at_once_is_found_and_then_tried_by_one_call_in_ten_at_most(most: int) -> None:
    model = Model()
    model.serve(most, 400)
    assert most <= model.window.size <= most + 1
    assert 0 < model.serve(most, 1000) <= 100
    assert most <= model.window.size <= most + 1


def test_a_number_at_once_that_rises_is_found() -> None:
    model = Model()
    model.serve(4, 100)
    model.serve(12, 200)
    assert model.window.size in (12, 13)


def test_refusals_with_nothing_under_way_close_the_window_unless_they_are_few() -> None:
    model = Model()
    model.serve(1, 10)
    for _ in range(2):
        model.fill()
        model.refuse(len(model.calls))
    assert model.window.delay(model.now) == 0, "two may come at random"
    model.serve(1, 1)
    for _ in range(3):
        assert model.window.delay(model.now) == 0
        model.fill()
        model.refuse(len(model.calls))
    assert model.window.delay(model.now) > 0


def test_pauses_double_with_each_refused_probe_until_a_minute_after_the_first_call() -> None:
    model, waits = Model(), list[float]()
    model.serve(1, 60)
    model.now = 30.0
    model.close()
    while True:
        waits.append(model.window.delay(model.now))
        model.now += waits[-1]
        assert model.fill() == 1, "a single call shows whether the limit still holds"
        if model.now >= 60:
            break
        model.refuse()
    doubling = waits[:-1]  # the last ends with the minute
    assert doubling[1:] == [2 * wait for wait in doubling[:-1]]
    assert model.now == pytest.approx(60, abs=0.5)
    model.refuse()
    assert model.window.delay(model.now) <= 10, "the call may have come a moment too early"


def test_a_refused_call_from_before_the_pause_does_not_lengthen_it() -> None:
    model = Model()
    model.serve(2, 20)
    model.close()
    model.now += model.window.delay(model.now)
    model.fill()
    model.answer(1)
    pause = model.window.delay(model.now)
    assert pause == 0
    model.fill()
    model.last += 1
    model.window.sent(model.now)
    model.calls.append((model.last, model.now))
    model.refuse()
    pause = model.window.delay(model.now)
    assert pause > 0
    model.refuse()
    assert model.window.delay(model.now) == pause


@pytest.mark.parametrize(("refill", "share"), [(0.25, 0.35), (0.5, 0.25), (0.8, 0.15)])
def test_a_rate_is_met_with_few_refusals(refill: float, share: float) -> None:
    """A token bucket; answers take a second, and refused calls are sent again at once."""
    model, tokens, refused, answered = Model(), 60.0, 0, 0
    for _ in range(4000):
        model.now += 1
        tokens = min(60.0, tokens + refill)
        model.answer(len(model.calls))
        while sent := model.fill():
            served = min(int(tokens), sent)
            tokens -= served
            model.refuse(sent - served)
            if model.now > 600:
                refused += sent - served
                answered += served
    assert answered >= 0.95 * refill * 3400
    assert refused <= share * answered


def test_slow_start_after_a_pause_ends_at_the_mean_number_under_way() -> None:
    model = Model()
    for _ in range(60):  # 20 calls under way for most of the time
        model.fill()
        model.now += 1
    model.refuse(0)
    model.answer(len(model.calls))
    under_way = INITIAL
    model.close()
    model.now += model.window.delay(model.now)
    sizes = []
    for _ in range(6):
        model.fill()
        model.answer(len(model.calls))
        sizes.append(model.window.size)
    assert sizes[:3] == [2, 4, 8]
    assert sizes[-1] <= under_way + 2


def test_slow_refusals_lengthen_the_time_after_which_a_call_is_accepted() -> None:
    model = Model()
    assert model.window.timer == 1
    model.fill()
    model.now += 3
    model.refuse()
    assert model.window.timer == 6


def test_a_wait_that_the_provider_asks_for_is_kept_to() -> None:
    model = Model()
    model.serve(1, 10)
    model.fill()
    model.refuse(len(model.calls), retry_after=20.0)
    assert model.window.delay(model.now) == 20.0
    model.now += 20.0
    assert model.fill() == 1
    model.refuse(retry_after=0.5)
    assert model.window.delay(model.now) == 0.5


def test_slow_start_follows_a_wait_that_the_provider_asks_for() -> None:
    model = Model()
    for _ in range(20):
        model.fill()
        model.now += 1
        model.answer(len(model.calls))
    model.fill()
    model.answer(len(model.calls) - 1)
    model.refuse(retry_after=2.0)
    model.now += 2.0
    for _ in range(4):
        model.fill()
        model.answer(len(model.calls))
    assert model.window.size == 16


def test_where_a_limit_of_the_rate_is_known_a_refusal_closes_the_window_at_once() -> None:
    model = Model()
    model.serve(1, 1)
    model.close()
    model.now += model.window.delay(model.now)
    model.fill()
    model.answer(1)
    model.fill()
    model.refuse()
    assert model.window.delay(model.now) > 1


def test_a_call_that_hangs_while_others_are_answered_lowers_nothing() -> None:
    model = Model(WindowBounds(maximum=16))
    model.serve(16, 100)
    model.fill()
    model.time_out(1, answered=90)
    assert model.window.size == 16


def test_more_calls_without_an_answer_than_with_one_lower_the_window_to_half_of_the_answers() -> None:
    model = Model(WindowBounds(maximum=16))
    model.serve(16, 100)
    model.fill()
    model.answer(6)
    model.time_out(10, answered=6)
    assert model.window.size == 3


def test_calls_without_any_answer_halve_the_window_once() -> None:
    model = Model(WindowBounds(maximum=16))
    model.serve(16, 100)
    model.fill()
    model.time_out(16, answered=0)
    assert model.window.size == 8


@given(st.lists(st.sampled_from(["fill", "answer", "refuse", "wait", "time_out", "told"]), max_size=80))
def test_the_window_never_leaves_its_bounds_and_always_opens_again(steps: list[str]) -> None:
    model = Model(WindowBounds(minimum=2, start=12, maximum=20))
    for step in steps:
        if step == "fill":
            model.fill()
        elif step == "wait":
            model.now += 0.7
        elif model.calls and step == "answer":
            model.answer(1)
        elif model.calls and step == "time_out":
            model.time_out(1, 0)
        elif model.calls:
            model.refuse(1, 5.0 if step == "told" else None)
        assert 2 <= model.window.size <= 20
        assert model.window.delay(model.now) <= 60
    model.answer(len(model.calls))
    model.now += 60
    assert model.fill() >= 2
