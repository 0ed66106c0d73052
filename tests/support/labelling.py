"""Finished runs of every kind that people can label, and labelling in a browser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    Dataset,
    DatasetManifest,
    RunSample,
    RunSpec,
)
from dramaturg.results.rows import flatten
from gateway.runs.records import NewRun, NewSample, SampleOutcome
from gateway.runs.store import RunStore
from gateway.runs.store.sample_rows import sample_rows
from tests.support.browser import Tab

KINDS = {
    "scripts": "scripts",
    "texts": "texts",
    "pair": "pairs",
    "dialogue": "dialogues",
    "graphs": "graphs",
    "decision": "decisions",
    "scenarios": "scenarios",
}
"""The kind of a run by the member of ``RunSample.result``."""


def press_keys(seen: Tab, keys: Iterable[str]) -> None:
    """Labels the items of an open queue, from the first, each by one key."""
    for place, key in enumerate(keys, start=1):
        seen.page.locator("h1", has_text=f"Item {place} of").wait_for()
        # The heading is there before the script that reads keys.
        seen.page.wait_for_load_state()
        seen.page.keyboard.press(key)


def finished_run(
    store: RunStore,
    samples: Iterable[RunSample],
    run_id: str = "run",
    tenant: str = "",
    name: str = "a run",
    creator: str = "",
    **fields: Any,
) -> None:
    """Makes a run of samples with results, which has succeeded.

    Args:
        store: The store of the run.
        samples: Its samples.
        run_id: Its id.
        tenant: Its tenant.
        name: Its name.
        creator: Who creates it.
        fields: Other fields of its specification.
    """
    listed = list(samples)
    result = listed[0].WhichOneof("result") or ""
    options: Any = {KINDS[result]: {}}
    spec = RunSpec(dataset=Dataset(content=b""), display_name=name, **options, **fields)
    store.runs.create(NewRun(id=run_id, tenant=tenant, spec=spec, creator=creator))
    rows = [
        NewSample(one.index, one.index + 1, one.sample_id, dict(one.tags), _request(one)) for one in listed
    ]
    store.samples.add(run_id, sample_rows(rows))
    store.runs.set_manifest(run_id, DatasetManifest(sha256="x"))
    store.runs.change_state(run_id, RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    store.samples.take(run_id, [one.index for one in listed], "e")
    store.attempts.finish(run_id, 1, [SampleOutcome(one, flatten(one), _usage(one)) for one in listed])
    store.runs.change_state(run_id, RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])


def _usage(sample: RunSample) -> Usage:
    """The usage that the result of a sample states."""
    result = getattr(sample, sample.WhichOneof("result") or "")
    return result.usage if hasattr(result, "usage") else Usage()


def _request(sample: RunSample) -> bytes:
    pair = EvaluatePairsRequest(
        id=sample.pair.id,
        source=f"The article {sample.index}.",
        first=ComparedText(text=f"The first summary of {sample.index}."),
        second=ComparedText(text=f"The second summary of {sample.index}."),
    )
    return pair.SerializeToString()
