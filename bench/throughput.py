"""The cost of evaluations beside that of their model calls: time, processor time and memory, in one run.

Every setup makes ``--judgements`` calls of a model: a server of this machine that speaks the OpenAI protocol
and answers after ``--latency`` seconds. It is never called more than ``--concurrency`` times at once. No
prompt comes twice; every completion is kept in the ledger, every call is logged; a run keeps its results;
nothing abstains. Ideal is the least time that latency and concurrency allow: calls / concurrency x latency.
Processor time is that of the services' processes (/proc/PID/stat), without the server of models and the
collector; that of this program, which calls the gateway, is told apart. Every setup is warmed up.

The kinds of evaluation, each as one run from its creation to its end, with services as separate processes,
every call traced to a collector of this machine, and metrics counted:

    scripts_8   the single judge, seven verdicts a candidate, tasks with eight candidates
    scripts_1   the same, tasks with one candidate
    pairs       two texts by fixed roles, in both orders
    decisions   a choice between two options
    dialogues   a reply, and its rating
    graphs      the order of seven events, and its scores

The other setups evaluate scripts with eight candidates: all services in one process (``dramaturg up``);
separate processes that also send an event of every verdict; those without traces and metrics; those called by
EvaluateScripts for each judgement; the ``openai`` client alone, which posts the same bodies; and ``aiohttp``
alone, the floor.

    python bench/throughput.py [--judgements 1000] [--concurrency 64] [--latency 0.1] [--repeat 3] [--json]
        [--only NAME ...] [--quick] [--ledger postgresql://...]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from platform import python_version
from statistics import median
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from bench.load import setups
from bench.load.collector import collector
from bench.load.kinds import KINDS
from bench.load.measured import Load, Measured
from bench.load.model_server import model_server

MAIN = "scripts_8"
TOGETHER, EVENTS, UNTRACED, CALLS, BARE, FLOOR = (
    "one_process",
    "events",
    "untraced",
    "calls",
    "bare_client",
    "floor",
)
SETUPS = (TOGETHER, EVENTS, UNTRACED, CALLS, BARE, FLOOR)
"""The setups beside the kinds."""
LABELS = {
    TOGETHER: "scripts_8, one process",
    EVENTS: "scripts_8, an event a verdict",
    UNTRACED: "scripts_8, no traces and metrics",
    CALLS: "scripts, a call each",
    BARE: "bare openai client",
    FLOOR: "aiohttp alone",
}
QUICK = Load(judgements=32, concurrency=8, latency=0.02)


async def measure(
    load: Load, repeat: int, ledger: str | None, wanted: Collection[str]
) -> dict[str, Measured]:
    """Measures the selected setups in turn, repeatedly; returns the median of each figure."""
    found: dict[str, list[Measured]] = {}
    # Services take seconds to start: a look whether it works needs none.
    quick = load is QUICK
    with collector() as spans:
        for _ in range(repeat):
            # The main kind comes first: its bodies are those of the setups without services.
            with model_server(load.latency) as url:
                platform = setups.Platform(load, url, ledger, spans, forked=quick)
                works: dict[str, Callable[[], Awaitable[Measured]]] = {
                    MAIN: partial(setups.run, platform),
                    TOGETHER: partial(setups.run, replace(platform, apart=False)),
                    EVENTS: partial(setups.run, replace(platform, events=True)),
                    UNTRACED: partial(setups.run, replace(platform, collector="")),
                    CALLS: partial(setups.calls, platform),
                    BARE: partial(setups.bare_client, load, url),
                    FLOOR: partial(setups.floor, load, url),
                }
                for name, work in works.items():
                    if name in wanted:
                        found.setdefault(name, []).append(await work())
            for name, kind in KINDS.items():
                if name in wanted and name != MAIN:
                    with model_server(load.latency, kind.answer) as url:
                        platform = setups.Platform(load, url, ledger, spans, kind=kind, forked=quick)
                        found.setdefault(name, []).append(await setups.run(platform))
    return {name: _median(found[name]) for name in (*KINDS, *SETUPS) if name in found}


def _median(some: Sequence[Measured]) -> Measured:
    columns = zip(*(asdict(one).values() for one in some), strict=True)
    return Measured(*map(median, columns))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (*KINDS, *SETUPS)
    parser.add_argument("--judgements", type=int, default=1000, help="model calls of each setup")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds")
    parser.add_argument("--repeat", type=int, default=1, help="repetitions; the median is shown")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="few calls, to see that it works")
    parser.add_argument("--ledger", help="the ledger's URL; by default a new SQLite file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    load = QUICK if options.quick else Load(options.judgements, options.concurrency, options.latency)
    if uneven := [name for name, kind in KINDS.items() if load.judgements % kind.calls]:
        parser.error(f"--judgements is not a multiple of the calls of one sample of {', '.join(uneven)}")
    # The setups without services need the bodies of the first kind.
    wanted = {*(options.only or names)}
    wanted |= {MAIN} if wanted & {BARE, FLOOR} else set()
    # As the services do: the clients that run in this process do not pay for what it imports.
    gc.collect()
    gc.freeze()
    result = uvloop.run(measure(load, options.repeat, options.ledger, wanted))
    if options.json:
        print(json.dumps(as_json(load, result), indent=2))
    else:
        console = Console()
        (console if console.is_terminal else Console(width=120)).print(as_table(load, result))


def as_json(load: Load, result: dict[str, Measured]) -> dict[str, Any]:
    def rounded(one: Measured) -> dict[str, float]:
        return {name: round(value, 3) for name, value in asdict(one).items()}

    kinds = {
        name: {
            "wall_over_ideal": round(result[name].wall_over_ideal, 3),
            "cpu_ms_per_call": round(result[name].cpu_ms_per_judgement, 3),
        }
        for name in KINDS
        if name in result
    }
    return {
        **(rounded(result[MAIN]) if MAIN in result else {}),
        "kinds": kinds,
        **{name: rounded(result[name]) for name in SETUPS if name in result},
        "judgements": load.judgements,
        "concurrency": load.concurrency,
        "latency_seconds": load.latency,
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": python_version(),
    }


def as_table(load: Load, result: dict[str, Measured]) -> Table:
    bare = result.get(BARE)
    table = Table(
        title=f"{load.judgements} model calls, {load.concurrency} at once, {load.latency * 1000:g} ms each",
        caption=f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}",
    )
    for column in ("", "wall / ideal", "/ bare", "CPU ms / call", "/ bare", "caller's CPU ms", "peak MiB"):
        table.add_column(column, justify="right" if column else "left")
    for name, one in result.items():
        table.add_row(
            LABELS.get(name, name),
            f"{one.wall_over_ideal:.2f}",
            f"{one.wall_over_ideal / bare.wall_over_ideal:.2f}" if bare else "-",
            f"{one.cpu_ms_per_judgement:.2f}",
            f"{one.cpu_ms_per_judgement / bare.cpu_ms_per_judgement:.1f}" if bare else "-",
            f"{one.caller_cpu_ms_per_judgement:.2f}" if one.caller_cpu_ms_per_judgement else "-",
            f"{one.peak_memory_mib:.0f}",
        )
    return table


if __name__ == "__main__":
    main()
