"""How much faster is a run on several gateways that share one PostgreSQL than on one of them?

    python bench/replicas.py --gateways 3 --json

Gateways, generation and judge are processes of their own, the model is a server on this machine that answers
after --latency. A gateway evaluates --slots samples at once, and the run asks for more than all of them have,
so that slots and latency are the limit, not the processors. Every gateway gets the same number of samples
to do. Printed: samples a second between a fifth and four fifths of the run, on one gateway and on all, their
ratio, and the processor time of the gateways for a sample.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from dramaturg.api.evaluation.v1.run_pb2 import RunLimits
from tests.support.fleet import SUCCEEDED, Fleet, fleet
from tests.support.postgres import run_postgres

_FIRST, _LAST = 0.2, 0.8


def processor_seconds(made: Fleet) -> float:
    """The processor time that the gateways have used so far."""
    ticks = 0
    for gateway in made.gateways:
        # After the name in parentheses, which may hold spaces: fields 14 and 15 of proc(5).
        fields = Path(f"/proc/{gateway.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def pace(store: str, gateways: int, samples: int, slots: int, latency: float) -> tuple[float, float]:
    """Samples a second in the middle of a run, and the gateways' processor seconds for a sample."""
    total = samples * gateways
    marks: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory(prefix="dramaturg-replicas-") as name:
        async with fleet(Path(name), store, gateways=gateways, latency=latency, slots=slots) as made:
            used = processor_seconds(made)
            run_id = await made.create(total, limits=RunLimits(max_concurrent_samples=2 * slots * gateways))
            while True:
                run = await made.get(run_id)
                marks.append((time.monotonic(), run.progress.succeeded_count))
                if run.HasField("end_time"):
                    break
                await asyncio.sleep(0.2)
            assert run.state == SUCCEEDED, run.state_reason
            used = processor_seconds(made) - used
    first = next(mark for mark in marks if mark[1] >= _FIRST * total)
    last = next(mark for mark in marks if mark[1] >= _LAST * total)
    return (last[1] - first[1]) / (last[0] - first[0]), used / total


async def measure(gateways: int, samples: int, slots: int, latency: float) -> dict[str, Any]:
    """One gateway, then all, each on an empty database of one server."""
    with run_postgres() as server:
        one, one_used = await pace(server.create_database(), 1, samples, slots, latency)
        several, several_used = await pace(server.create_database(), gateways, samples, slots, latency)
    return {
        "gateways": gateways,
        "slots": slots,
        "latency_seconds": latency,
        "samples_per_second_of_one": round(one, 2),
        "samples_per_second_of_all": round(several, 2),
        "ratio": round(several / one, 2),
        # A sample is two model calls, one after the other.
        "share_of_slots_used_by_one": round(one * 2 * latency / slots, 2),
        "share_of_slots_used_by_all": round(several * 2 * latency / slots / gateways, 2),
        "gateway_cpu_ms_per_sample_of_one": round(1000 * one_used),
        "gateway_cpu_ms_per_sample_of_all": round(1000 * several_used),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures several gateways against one.")
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--samples", type=int, default=200, help="samples for each gateway")
    parser.add_argument("--slots", type=int, default=8, help="samples that a gateway evaluates at once")
    parser.add_argument("--latency", type=float, default=0.3, help="seconds that the model takes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = asyncio.run(measure(given.gateways, given.samples, given.slots, given.latency))
    if given.json:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{name:34} {figure}")


if __name__ == "__main__":
    main()
