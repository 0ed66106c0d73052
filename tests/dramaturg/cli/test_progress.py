from __future__ import annotations

import re
import time
from typing import Any

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.cli.progress import JudgementCount, ProgressBar


class _Samples:
    """An aggregator after some samples."""

    usage = Usage(prompt_token_count=1200, cost_usd=0.25)

    def __init__(self, samples: int) -> None:
        self.samples = samples


@pytest.mark.parametrize("width", [60, 200])
def test_a_terminal_shows_rate_remaining_time_cost_abstentions_and_waits(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": str(width), "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    with ProgressBar(8, "verdicts", lambda _: JudgementCount(7, 2)) as progress:
        for done in range(1, 4):
            progress.happened(None)
            aggregator: Any = _Samples(done)
            progress.finished(aggregator)
        progress.show_waits(["openai: requests a minute, 12 s"])
    shown = " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err).split())
    last = shown[shown.rindex("samples") :]
    assert "3/8" in last
    assert re.search(r"[0-9.e+]+/s", last)
    assert re.search(r"\d:\d\d:\d\d", last)
    assert "…" not in last
    for text in ("21 verdicts, 6 abstained, 1,200 tokens, $0.2500", "openai: requests a minute, 12 s"):
        assert text in last or (width < 200 and set(text.split()) <= set(last.split()))


def test_the_rate_is_that_of_the_whole_time_and_the_name_says_what_is_evaluated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "200", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    start = time.monotonic()
    with ProgressBar(8, "verdicts", lambda _: JudgementCount(7, 2), "single-judge") as progress:
        while (elapsed := time.monotonic() - start) < 0.5:
            time.sleep(0.05)
        for done in range(1, 5):  # these end together
            aggregator: Any = _Samples(done)
            progress.finished(aggregator)
    shown = " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err).split())
    last = shown[shown.rindex("single-judge: samples") :]
    rate = re.search(r"([0-9.e+]+)/s", last)
    assert rate is not None
    # Printed with three digits.
    assert float(rate[1]) <= 1.01 * 4 / elapsed
