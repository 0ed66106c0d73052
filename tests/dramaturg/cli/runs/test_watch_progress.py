from __future__ import annotations

import io

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunIncident, RunProgress
from dramaturg.cli.runs.watch import RunDisplay, describe
from dramaturg.cli.terminal import Terminal
from dramaturg.results.quantities import duration
from dramaturg.results.run_text import describe_hindrance, describe_progress

PROGRESS = RunProgress(
    sample_count=1500,
    succeeded_count=500,
    failed_count=12,
    samples_per_second=7.25,
    remaining_time=Duration(seconds=3725),
    judgement_count=3500,
    abstention_count=41,
    usage=Usage(prompt_token_count=120_000, completion_token_count=400, cost_usd=0.5, unpriced_call_count=1),
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (605, "10 min 05 s"), (3725, "1 h 02 min")],
)
def test_times_are_told_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_progress_is_told_in_one_line() -> None:
    assert describe_progress(PROGRESS) == (
        "512 of 1,500 samples (34.1%), 12 failed, 7.25/s, 1 h 02 min left, 3,500 judgements, 41 abstained, "
        "120,400 tokens, at least $0.5000"
    )
    assert describe_progress(RunProgress()) == "0 of 0 samples, 0 judgements, 0 abstained"


def test_what_is_not_known_is_null() -> None:
    described = describe(Run(id="r", state=run_pb2.RunState.ValueType(99)))
    assert described["state"] == "STATE_99"
    unknown = ("samples_per_second", "remaining_seconds", "start_time", "end_time")
    assert [described[name] for name in unknown] == [None] * 4
    assert described["usage"]["cost_usd"] is None


def test_without_a_terminal_lines_are_some_seconds_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("dramaturg.cli.runs.watch.time.monotonic", lambda: now[0])
    out = io.StringIO()
    with RunDisplay(Terminal(file=out, width=200)) as display:
        for done in range(4):
            display.show_run(Run(id="r", state=run_pb2.RUN_STATE_RUNNING))
            display.show_progress(RunProgress(sample_count=4, succeeded_count=done))
            now[0] += 2.0
        display.show_run(Run(id="r", state=run_pb2.RUN_STATE_FAILED, state_reason="too many [failed]"))
    lines = out.getvalue().splitlines()
    assert lines[0] == "r RUNNING"
    assert [line.split()[0] for line in lines[1:3]] == ["0", "3"]
    assert "r FAILED: too many [failed]" in lines
    assert len(lines) == 4


def test_on_a_terminal_one_line_lives() -> None:
    out = io.StringIO()
    with RunDisplay(Terminal(file=out, force_terminal=True, width=200)) as display:
        display.show_run(Run(id="r", state=run_pb2.RUN_STATE_RUNNING, progress=PROGRESS))
        display.tell("the connection is lost")
    assert "RUNNING" in out.getvalue()
    assert "512 of 1,500 samples" in out.getvalue()
    assert "the connection is lost" in out.getvalue()


def test_the_live_line_goes_at_the_end_so_that_no_state_is_shown_twice() -> None:
    out = io.StringIO()
    with RunDisplay(Terminal(file=out, force_terminal=True, width=200)) as display:
        display.show_run(Run(id="r", state=run_pb2.RUN_STATE_RUNNING, progress=PROGRESS))
    # The cursor goes to the line and erases it.
    assert out.getvalue().endswith("\x1b[1A\x1b[2K")


def test_in_a_narrow_terminal_the_state_is_whole_and_nothing_is_left_out() -> None:
    out = io.StringIO()
    with RunDisplay(Terminal(file=out, force_terminal=True, width=60)) as display:
        display.show_run(Run(id="r", state=run_pb2.RUN_STATE_CANCELLED, progress=PROGRESS))
    shown = " ".join(out.getvalue().split())
    assert "CANCELLED" in shown
    assert "at least $0.5000" in shown
    assert "…" not in shown


def test_a_run_that_stands_still_has_no_pace() -> None:
    paused = describe_progress(PROGRESS, run_pb2.RUN_STATE_PAUSED)
    assert paused.startswith("512 of 1,500 samples (34.1%), 12 failed, 3,500 judgements")

    run = Run(id="r", state=run_pb2.RUN_STATE_PAUSED, progress=PROGRESS)
    described = describe(run)
    assert (described["samples_per_second"], described["remaining_seconds"]) == (None, None)


FAILING = RunProgress(
    sample_count=40,
    running_count=16,
    incident=RunIncident(
        description="The judge 'llm' failed with [UNAVAILABLE]: connection refused.",
        begin_time=Timestamp(seconds=1000),
        failed_attempt_count=1370,
        next_attempt_time=Timestamp(seconds=1085),
    ),
    last_advance_time=Timestamp(seconds=1000),
)


def test_what_keeps_a_run_from_getting_further_is_told_in_one_line() -> None:
    reason = "The judge 'llm' failed with [UNAVAILABLE]: connection refused."
    assert describe_hindrance(FAILING, 1080) == (
        f"for 1 min 20 s every attempt has failed, 1,370 in all, the next is in 5 s: {reason}"
    )
    # An attempt that is due is under way; and clocks differ.
    assert describe_hindrance(FAILING, 1086).endswith(f"1,370 in all: {reason}")
    assert describe_hindrance(FAILING, 990).startswith("for 0 s every attempt")
    waiting = RunProgress(incident=RunIncident(description="it waits", begin_time=Timestamp(seconds=1000)))
    assert describe_hindrance(waiting, 1065) == "for 1 min 05 s no sample was done: it waits"
    waiting.model_waits.append("rate-limited by main, next in 9 s")
    assert describe_hindrance(waiting, 1065).endswith("done: it waits; rate-limited by main, next in 9 s")
    silent = RunProgress(running_count=16, last_advance_time=Timestamp(seconds=1000))
    assert describe_hindrance(silent, 1029) == ""
    assert describe_hindrance(silent, 1040) == "no sample was done for 40 s; 16 are in progress"
    assert describe_hindrance(RunProgress(), 1040) == ""


def test_trouble_is_in_the_json() -> None:
    described = describe(Run(id="r", state=run_pb2.RUN_STATE_RUNNING, progress=FAILING))
    assert described["incident"] == {
        "description": "The judge 'llm' failed with [UNAVAILABLE]: connection refused.",
        "begin_time": "1970-01-01T00:16:40Z",
        "failed_attempts": 1370,
        "next_attempt_time": "1970-01-01T00:18:05Z",
    }
    assert described["last_advance_time"] == "1970-01-01T00:16:40Z"
    assert describe(Run(id="r"))["incident"] is None


def test_on_a_terminal_trouble_stands_under_the_progress_and_disappears() -> None:
    failing, passed = io.StringIO(), io.StringIO()
    for out, after in ((failing, None), (passed, RunProgress(sample_count=40, succeeded_count=1))):
        with RunDisplay(Terminal(file=out, force_terminal=True, width=200)) as display:
            display.show_run(Run(id="r", state=run_pb2.RUN_STATE_RUNNING, progress=FAILING))
            if after is not None:
                display.show_progress(after)
    lines = failing.getvalue().splitlines()
    last = max(place for place, line in enumerate(lines) if "0 of 40 samples" in line)
    assert "[UNAVAILABLE]: connection refused." in lines[last + 1]
    assert "refused" not in passed.getvalue().rpartition("1 of 40 samples")[2]


def test_without_a_terminal_trouble_is_told_at_once_and_then_now_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("dramaturg.cli.runs.watch.time.monotonic", lambda: now[0])
    monkeypatch.setattr("dramaturg.cli.runs.watch.time.time", lambda: 980 + now[0])
    out = io.StringIO()
    with RunDisplay(Terminal(file=out, width=200)) as display:
        display.show_run(Run(id="r", state=run_pb2.RUN_STATE_RUNNING))
        for _ in range(13):
            display.show_progress(FAILING)
            now[0] += 5.0
    told = [line for line in out.getvalue().splitlines() if "every attempt has failed" in line]
    assert [line.split(" every")[0] for line in told] == [
        "for 1 min 20 s",
        "for 1 min 50 s",
        "for 2 min 20 s",
    ]


def test_a_bound_of_nothing_is_not_told() -> None:
    unpriced = RunProgress(usage=Usage(prompt_token_count=7, cost_usd=0, unpriced_call_count=2))
    assert describe_progress(unpriced).endswith("0 abstained, 7 tokens")
