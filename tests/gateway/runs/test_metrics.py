"""What is counted and traced of runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.testing import until
from tests.support.engines import runs_with, script_rows, scripts_spec
from tests.support.gateway import Fake, all_pass
from tests.support.telemetry import counted, traced


async def test_runs_are_shown_while_they_last_and_counted_when_they_end(tmp_path: Path) -> None:
    held = asyncio.Event()

    async def critique(request: Any) -> Any:
        await held.wait()
        return all_pass("critic")

    url = f"sqlite:///{tmp_path / 'runs.sqlite3'}"
    with counted() as counts, traced() as spans:
        async with runs_with(
            url, Fake("critic", critique), lease_renewal_seconds=0.1, lease_seconds=1
        ) as runs:
            run_id = await runs.create(scripts_spec(), script_rows(3))
            await until(lambda: counts.now().sum("dramaturg_run_samples_pending") == 3)
            await until(lambda: counts.now().sum("dramaturg_run_samples_in_flight") == 3)
            await until(lambda: counts.now().sum("dramaturg_run_batches") >= 1)
            during = counts.now()
            held.set()
            run = await runs.ended(run_id)
            await until(lambda: counts.now().sum("dramaturg_runs", state="running") == 0)
            after = counts.now()
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED
    assert during.by("dramaturg_runs", "state") == {"running": 1, "preparing": 0, "paused": 0}
    assert after.by("dramaturg_run_samples_total", "state") == {"succeeded": 3}
    assert after.by("dramaturg_runs_ended_total", "state") == {"succeeded": 1}
    assert after.sum("dramaturg_run_samples_pending") == 0
    assert after.sum("dramaturg_run_samples_in_flight") == 0
    assert after.sum("dramaturg_run_store_write_duration_seconds_count") >= 1
    assert after.by("dramaturg_judgements_total", "outcome") == {"pass": 3 * 7}

    # Each sample is a trace of its own, the orchestrator is another.
    samples = [span for span in spans if span.name == "evaluate sample"]
    assert sorted(span.attributes["dramaturg.sample.index"] for span in samples) == [0, 1, 2]
    assert {span.attributes["dramaturg.run.id"] for span in samples} == {run_id}
    assert not any(span.parent_id for span in samples)
    traces = {span.trace_id for span in samples}
    assert len(traces) == 3
    under = [span for span in spans if span.parent_id and span.trace_id in traces]
    assert {span.name for span in under} >= {"dramaturg.api.judging.v1.JudgeService/Judge"}
    (orchestrated,) = [span for span in spans if span.name == "orchestrate run"]
    assert orchestrated.trace_id not in traces
