"""A large run: does it stay as small and fast as it began, and is it soon back after a kill?

    python bench/scale.py --judgements 100000 --json

A judgement here is one call of a judge, answered by one model call. Gateway, generation and judge are
processes of their own, the model is a server on this machine that answers after 5 ms, the store is a SQLite
file, or what --store names. Printed: the memory of every process at the end over that at a fifth (of a
gateway that was killed: at three fifths), the time of a judgement in the last fifth over that in the second,
the bytes of the store for a judgement, and how long after the start of the gateway that was killed at the
half further samples were done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits, RunSpec, ScriptsRunOptions
from tests.support.engines import lines, script_rows
from tests.support.fleet import SUCCEEDED, Fleet, fleet
from tests.support.processes import ServiceProcess

CANDIDATES = 10
"""Candidates of a sample, each with one judgement."""
LATENCY_SECONDS = 0.005


@dataclass
class Watch:
    """Measurements during a run."""

    marks: list[tuple[int, float]] = field(default_factory=list)
    """How many samples were done when."""
    memory: dict[int, dict[str, int]] = field(default_factory=dict)
    """The resident memory of each process in bytes, by the percentage of samples done."""
    resumed_seconds: float = 0
    """From the start of the killed gateway's process to further samples."""


def resident(process: ServiceProcess) -> int:
    """The resident memory of a process, in bytes."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * 4096


def processes(made: Fleet) -> dict[str, ServiceProcess]:
    return {"gateway": made.gateways[0], "generation": made.generation, "judge": made.judge}


async def follow(made: Fleet, run_id: str, samples: int, *, kill: bool) -> Watch:
    watch = Watch()
    killed = not kill
    while True:
        run = await made.get(run_id)
        done = run.progress.succeeded_count + run.progress.failed_count
        watch.marks.append((done, time.monotonic()))
        percent = 100 * done // samples
        for level in (20, 60, 100):
            if percent >= level and level not in watch.memory:
                watch.memory[level] = {name: resident(one) for name, one in processes(made).items()}
        if run.HasField("end_time"):
            assert run.state == SUCCEEDED, run.state_reason
            return watch
        if percent >= 50 and not killed:
            killed = True
            gateway = made.gateways[0]
            await gateway.kill()
            begun = time.monotonic()
            await gateway.start()
            before = (await made.get(run_id)).progress.succeeded_count
            await made.done(run_id, before + 1)
            watch.resumed_seconds = time.monotonic() - begun
        await asyncio.sleep(0.5)


def pace(watch: Watch, samples: int, first: float, last: float) -> float:
    """Seconds a sample between two shares of the run."""
    begun = next(mark for mark in watch.marks if mark[0] >= first * samples)
    ended = next(mark for mark in watch.marks if mark[0] >= last * samples)
    return (ended[1] - begun[1]) / max(1, ended[0] - begun[0])


def write_rows(file: Path, samples: int) -> None:
    """Writes the dataset, too large for a request."""
    with file.open("wb") as out:
        for row in script_rows(samples, CANDIDATES):
            out.write(lines([row]))


def size_of(folder: Path, pattern: str) -> int:
    """The bytes of files."""
    return sum(file.stat().st_size for file in folder.glob(pattern))


async def measure(judgements: int, concurrency: int, store: str, *, kill: bool) -> dict[str, Any]:
    samples = judgements // CANDIDATES
    spec = RunSpec(
        scripts=ScriptsRunOptions(
            mechanism=scripts_pb2.MECHANISM_SINGLE_JUDGE,
            gold_answer_source=scripts_pb2.GOLD_ANSWER_SOURCE_NONE,
        ),
        limits=RunLimits(max_concurrent_samples=concurrency),
    )
    with tempfile.TemporaryDirectory(prefix="dramaturg-scale-") as name:
        folder = Path(name)
        url = store or f"sqlite:///{folder / 'runs.sqlite3'}"
        write_rows(folder / "rows.jsonl", samples)
        spec.dataset.uri = str(folder / "rows.jsonl")
        async with fleet(folder, url, latency=LATENCY_SECONDS) as made:
            begun = time.monotonic()
            run_id = await made.create_run(spec)
            watch = await follow(made, run_id, samples, kill=kill)
            seconds = time.monotonic() - begun
        size, ledger = size_of(folder, "runs*"), size_of(folder, "ledger*")
    early, late = watch.memory[20], watch.memory[100]
    figures: dict[str, Any] = {
        "judgements": samples * CANDIDATES,
        "seconds": round(seconds, 1),
        "memory_ratio": {one: round(late[one] / early[one], 3) for one in early},
        "memory_mb": {one: round(late[one] / 2**20) for one in late},
        "time_ratio": round(pace(watch, samples, 0.8, 1.0) / pace(watch, samples, 0.2, 0.4), 3),
        "store_bytes_per_judgement": round(size / (samples * CANDIDATES)) if not store else None,
        "ledger_bytes_per_judgement": round(ledger / (samples * CANDIDATES)),
    }
    if kill:
        # Its memory began anew with the process, so its first mark is a later one.
        figures["memory_ratio"]["gateway"] = round(late["gateway"] / watch.memory[60]["gateway"], 3)
        figures["resumed_seconds"] = round(watch.resumed_seconds, 1)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a large run.")
    parser.add_argument("--judgements", type=int, default=5_000)
    parser.add_argument("--concurrency", type=int, default=16, help="samples at once")
    parser.add_argument("--store", default="", help="sqlite:///... or postgresql://...; default: a file")
    parser.add_argument("--no-kill", action="store_true", help="do not kill the gateway at the half")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = asyncio.run(measure(given.judgements, given.concurrency, given.store, kill=not given.no_kill))
    if given.json:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{name:28} {figure}")


if __name__ == "__main__":
    main()
