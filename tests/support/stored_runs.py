"""Finished runs in a store, and a gateway that serves them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from google.protobuf.json_format import ParseDict

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    Dataset,
    DatasetManifest,
    RunSample,
    RunSpec,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import (
    EXPORT_FORMAT_JSONL,
    EXPORT_FORMAT_SAMPLES_JSONL,
    ExportFormat,
)
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.summaries import as_json
from dramaturg.client import DramaturgClient
from dramaturg.datasets.json_lines import json_objects
from dramaturg.results.files import read_results
from dramaturg.results.rows import flatten
from dramaturg.testing import serve
from gateway.app import App as Gateway
from gateway.runs.records import SampleOutcome
from gateway.runs.settings import RunsSettings
from gateway.runs.store import open_store
from gateway.settings import GatewaySettings, JudgeEntry
from services.alignment.app import App as AlignmentApp
from services.graph.app import App as GraphApp
from tests.support.evaluation_samples import KINDS, kind_of
from tests.support.runs import create, rows, sample_rows


def outcome(sample: RunSample) -> SampleOutcome:
    return SampleOutcome(sample, flatten(sample), Usage())


def store_run(address: str, run_id: str, some: Sequence[RunSample]) -> None:
    store = open_store(address)
    kind = KINDS.get(name := kind_of(some), name)
    spec = RunSpec(dataset=Dataset(content=b""))
    getattr(spec, kind).SetInParent()
    create(store, run_id, spec=spec)
    stored = zip(rows(range(len(some))), some, strict=True)
    store.samples.add(run_id, sample_rows([replace(row, tags=dict(sample.tags)) for row, sample in stored]))
    store.runs.set_manifest(run_id, DatasetManifest(sha256="x"))
    store.runs.change_state(run_id, RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    run = store.runs.get(run_id)
    assert run is not None
    store.samples.take(run_id, range(len(some)), "here")
    store.attempts.finish(run_id, run.attempt, [outcome(sample) for sample in some])
    store.runs.change_state(run_id, RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])
    store.close()


@asynccontextmanager
async def client(folder: Path, *roles: str) -> AsyncIterator[DramaturgClient]:
    """A client of the gateway of ``gateway_address``."""
    async with gateway_address(folder, *roles) as target, DramaturgClient(target) as gateway:
        yield gateway


@asynccontextmanager
async def gateway_address(folder: Path, *roles: str) -> AsyncIterator[str]:
    """A gateway with the run store in a folder, and with the statistics services of the roles."""
    async with AsyncExitStack() as stack:
        judges = []
        for app in (AlignmentApp(), GraphApp()):
            if app.name not in roles:
                continue
            contracts = await stack.enter_async_context(app.open())
            server = await stack.enter_async_context(serve(*contracts))
            judges.append(JudgeEntry(role=app.name, name="built-in", target=server.target))
        gateway = Gateway(
            GatewaySettings(judges=tuple(judges)), RunsSettings(enabled=True, url=address_of(folder))
        )
        contracts = await stack.enter_async_context(gateway.open())
        yield (await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))).target


def address_of(folder: Path) -> str:
    return f"sqlite:///{folder}/runs.sqlite3"


async def exported(
    gateway: DramaturgClient, file: Path, form: ExportFormat.ValueType, run_id: str = "run"
) -> Path:
    content = b"".join([piece async for piece in gateway.runs.export(run_id, form)])
    await asyncio.to_thread(file.write_bytes, content)
    return file


async def assert_consumers_agree(
    gateway: DramaturgClient, folder: Path, some: Sequence[RunSample], found: Summary
) -> None:
    """The report, the export of judgements and the export of samples have the figures of the summary."""
    page = b"".join([piece async for piece in gateway.runs.report("run")]).decode()
    for entry in found.leaderboard:
        assert f"<bdi>{entry.judged_count:,} of {entry.judgement_count:,}</bdi>" in page

    values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    file = await exported(gateway, folder / "judgements.jsonl", EXPORT_FORMAT_JSONL)
    for _, record in json_objects(file):
        row = ParseDict(record, RunResult())
        if row.HasField("value"):
            values[row.model, row.measure].append(row.value)
    means = {
        (entry.model, measure): mean
        for entry in found.leaderboard
        for measure, mean in entry.means_by_measure.items()
    }
    if found.leaderboard:
        assert means == {key: sum(some) / len(some) for key, some in values.items()}

    file = await exported(gateway, folder / "samples.jsonl", EXPORT_FORMAT_SAMPLES_JSONL)
    whole = await gateway.summarize(some, SummaryOptions())
    again = await gateway.summarize(read_results(file), SummaryOptions())
    for name in ("failed_sample_count", "failures_by_reason", "sample_count"):
        whole.ClearField(name)
        again.ClearField(name)
    assert str(again) == str(whole)
    assert as_json(again) == as_json(whole)
