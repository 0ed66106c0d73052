"""Runs of scripts."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunLimits, RunSpec, ScriptsRunOptions
from dramaturg.client import DramaturgClient
from tests.cluster.load import OPTIONS, request
from tests.support.engines import lines

RUN_SECONDS = 120.0
"""By when a run goes on, and a short one has ended."""


async def create_run(client: DramaturgClient, count: int, name: str, limits: RunLimits | None = None) -> Run:
    """A run of so many scripts."""
    rows = [request(f"{name}-{number}") for number in range(count)]
    spec = RunSpec(
        display_name=name,
        dataset=Dataset(content=lines(rows)),
        scripts=ScriptsRunOptions(),
        options=OPTIONS,
        limits=limits,
    )
    return await client.runs.create(spec)
