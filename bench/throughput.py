"""What a judgement costs beside the call of a model: time, processor time and memory, in one run.

A judgement is one script before the single judge: gateway -> script-judge -> generation -> a server of this
machine that speaks the OpenAI protocol and answers after ``--latency`` seconds. It ends in one assessment
with seven verdicts, none of them an abstention. No prompt comes twice; every completion is kept in the
ledger, every call is logged; a run keeps its results.

Five setups are measured one after the other, ``--repeat`` times, and the median is shown. The services as
separate processes make one run of tasks with eight candidates each, from its creation to its end, with
everything on: every call is traced, to a collector of this machine, and metrics are counted. Then the same
run with all services in one process (``dramaturg up``); the first one without traces and metrics; the
separate processes, with everything on, asked by a call of EvaluateScripts for each judgement; and for
comparison the bare ``openai`` client, which sends the same bodies and does nothing with the answers. Never is
the model called more than ``--concurrency`` times at once. Ideal is what the latency and the concurrency
allow: judgements / concurrency x latency. Processor time is what /proc/PID/stat says of the services'
processes; that of the server of models and of the collector is not counted, that of this program, which calls
the gateway, is told apart. Every setup has made some judgements before it is measured.

    python bench/throughput.py [--judgements 1000] [--concurrency 64] [--latency 0.1] [--repeat 3] [--json]
        [--ledger postgresql://...]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from platform import python_version
from statistics import median
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from bench.load import judgements, setups
from bench.load.collector import collector
from bench.load.measured import Load, Measured
from bench.load.model_server import model_server
from tests.support.judges import all_pass

RUN, TOGETHER, UNTRACED = "a run", "the run, one process", "the run, no traces and metrics"
CALLS, BARE = "a call each", "bare openai client"


async def measure(load: Load, repeat: int, ledger: str | None) -> dict[str, Measured]:
    """Measures every setup in turn, so many times; the median of each figure."""
    found: dict[str, list[Measured]] = {RUN: [], TOGETHER: [], UNTRACED: [], CALLS: [], BARE: []}
    text = all_pass(await judgements.question()).text
    with model_server(load.latency, text) as url, collector() as spans:
        platform = setups.Platform(load, url, ledger, spans)
        for _ in range(repeat):
            found[RUN].append(await setups.run(platform))
            found[TOGETHER].append(await setups.run(replace(platform, apart=False)))
            found[UNTRACED].append(await setups.run(replace(platform, collector="")))
            found[CALLS].append(await setups.calls(platform))
            found[BARE].append(await setups.bare_client(load, url))
    return {name: _median(some) for name, some in found.items()}


def _median(some: Sequence[Measured]) -> Measured:
    columns = zip(*(asdict(one).values() for one in some), strict=True)
    return Measured(*map(median, columns))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judgements", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds")
    parser.add_argument("--repeat", type=int, default=1, help="the median of so many runs is shown")
    parser.add_argument("--ledger", help="the ledger's URL; by default a new SQLite file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.judgements % setups.RUN_CANDIDATES:
        parser.error(f"--judgements must be a multiple of {setups.RUN_CANDIDATES}")
    load = Load(options.judgements, options.concurrency, options.latency)
    # As the services do: the bare client, which runs in here, is not to pay for what the setups import.
    gc.collect()
    gc.freeze()
    result = uvloop.run(measure(load, options.repeat, options.ledger))
    if options.json:
        print(json.dumps(as_json(load, result), indent=2))
    else:
        console = Console()
        # In a file or a pipe nothing is gained by folding the columns.
        (console if console.is_terminal else Console(width=120)).print(as_table(load, result))


def as_json(load: Load, result: dict[str, Measured]) -> dict[str, Any]:
    def rounded(one: Measured) -> dict[str, float]:
        return {name: round(value, 3) for name, value in asdict(one).items()}

    return {
        **rounded(result[RUN]),
        "one_process": rounded(result[TOGETHER]),
        "untraced": rounded(result[UNTRACED]),
        "calls": rounded(result[CALLS]),
        "bare_client": rounded(result[BARE]),
        "judgements": load.judgements,
        "concurrency": load.concurrency,
        "latency_seconds": load.latency,
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": python_version(),
    }


def as_table(load: Load, result: dict[str, Measured]) -> Table:
    bare = result[BARE]
    table = Table(
        title=f"{load.judgements} judgements, {load.concurrency} at once, {load.latency * 1000:g} ms a call",
        caption=f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}",
    )
    for column in (
        "",
        "wall / ideal",
        "/ bare",
        "CPU ms / judgement",
        "/ bare",
        "caller's CPU ms",
        "peak MiB",
    ):
        table.add_column(column, justify="right" if column else "left")
    for name, one in result.items():
        table.add_row(
            name,
            f"{one.wall_over_ideal:.2f}",
            f"{one.wall_over_ideal / bare.wall_over_ideal:.2f}",
            f"{one.cpu_ms_per_judgement:.2f}",
            f"{one.cpu_ms_per_judgement / bare.cpu_ms_per_judgement:.1f}",
            f"{one.caller_cpu_ms_per_judgement:.2f}" if one.caller_cpu_ms_per_judgement else "-",
            f"{one.peak_memory_mib:.0f}",
        )
    return table


if __name__ == "__main__":
    main()
