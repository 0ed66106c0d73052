"""The sizes of the chart: Deployments, pods, objects, memory at rest, and evaluations a second.

Each size is rendered, and one process for each Deployment is started on this machine as its manifest
configures it, ``single`` with SQLite and the others with a PostgreSQL of their own. A scripted model answers
at once. Callers ask for EvaluateTexts with one text and one criterion: one call to a judge and one to the
model. All processes, the model and the callers share the processors: the rates compare the sizes and promise
nothing.

    python -m bench.sizes [--seconds 10] [--callers 16] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dramaturg.client import DramaturgClient
from tests.cluster.names import LAG_SECONDS, Names
from tests.cluster.replicas import Replica
from tests.k8s.rendered import Rendering, applied, render
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import run_postgres
from tests.support.scripted_model import approve
from tests.support.texts import POLITE, texts_request

SIZES = ("single", "standard", "separate")
NETWORK = f"127.{200 + (os.getpid() >> 8) % 32}.{os.getpid() % 256}"
COLUMNS = {
    "size": "size",
    "deployments": "Deployments",
    "pods": "pods",
    "objects": "objects",
    "rest_mib": "memory at rest, MiB, one pod of each",
    "evaluations_per_second": "evaluations a second",
}


async def measured(size: str, place: Path, seconds: float, callers: int) -> Mapping[str, Any]:
    """The figures of a size."""
    default = applied(render({"size": size}))
    scaled = {one["metadata"]["name"]: one["spec"] for one in default.of("HorizontalPodAutoscaler")}
    names = [one["metadata"]["name"] for one in default.of("Deployment")]
    found: dict[str, Any] = {
        "size": size,
        "deployments": len(names),
        "pods": sum(scaled[name]["minReplicas"] if name in scaled else 1 for name in names),
        "objects": len(default.objects),
    }
    with ExitStack() as stack:
        url = "" if size == "single" else stack.enter_context(run_postgres()).create_database()
        async with OpenAIServer(approve, record=False) as model:
            provider = {
                "name": "scripted",
                "kind": "chat",
                "base_url": model.base_url,
                "default_model": "test-model",
            }
            values = {
                "size": size,
                "anonymous": True,
                "providers": [provider],
                "store": {"caSecret": {"name": ""}},
            }
            replicas = _replicas(applied(render(values)), place, url)
            try:
                names_seen = Names(place / "hosts")
                for replica in replicas:
                    names_seen.add(replica.pod.name, replica.address)
                await asyncio.sleep(LAG_SECONDS)
                # The gateway last: it looks its judges up when it starts.
                for replica in sorted(replicas, key=lambda one: one.pod.name == "gateway"):
                    await replica.start(names_seen)
                    await replica.wait_until_ready()
                found["rest_mib"] = round(sum(replica.memory_bytes for replica in replicas) / 2**20)
                gateway = next(replica for replica in replicas if replica.pod.name == "gateway")
                found["evaluations_per_second"] = await _rate(gateway.target, seconds, callers)
            finally:
                await asyncio.gather(*(replica.kill() for replica in replicas))
    return found


def _replicas(rendering: Rendering, place: Path, url: str) -> list[Replica]:
    """One of each Deployment, with the database ``url`` or a file."""
    stores = ("DRAMATURG_RUNS_URL", "DRAMATURG_GENERATION_LEDGER_URL")
    own = {} if url else {name: f"sqlite:///{place}/{name.lower()}.sqlite3" for name in stores}
    return [
        Replica(
            pod, rendering, name=pod.name, address=f"{NETWORK}.{number}", folder=place,
            secrets={"store-app": {"uri": url}},
            overrides=own if pod.name in {"gateway", "generation"} else {},
        )
        for number, pod in enumerate(rendering.pods(), start=1)
    ]  # fmt: skip


async def _rate(target: str, seconds: float, callers: int) -> float:
    """Evaluations a second, after a second that connects all."""
    numbers = itertools.count()

    async def call(client: DramaturgClient, until: float) -> int:
        done = 0
        while time.monotonic() < until:
            request = texts_request(f"Hello, number {next(numbers)}!", criteria=[POLITE])
            async for event in client.evaluate_texts(request, timeout=60):
                if event.HasField("result"):
                    assert not event.result.texts[0].verdicts[0].abstain_reason, event.result
            done += 1
        return done

    async with DramaturgClient(target) as client:
        for length in (1.0, seconds):
            begun = time.monotonic()
            done = await asyncio.gather(*(call(client, begun + length) for _ in range(callers)))
            rate = sum(done) / (time.monotonic() - begun)
    return round(rate, 1)


def main() -> None:
    """Measures each size and prints a table, or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    given = parser.parse_args()
    rows = []
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(asyncio.run(measured(size, Path(folder), given.seconds, given.callers)))
    if given.json:
        print(json.dumps(rows))
        return
    print(f"| {' | '.join(COLUMNS.values())} |\n|{'---|' * len(COLUMNS)}")
    for row in rows:
        print(f"| {' | '.join(str(row[name]) for name in COLUMNS)} |")


if __name__ == "__main__":
    main()
