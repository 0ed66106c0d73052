"""Reads the dataset of a run into the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.run_pb2 import DatasetManifest
from dramaturg.datasets import DatasetError
from dramaturg.service.errors import ServiceError
from gateway.fair_semaphore import FairSemaphore
from gateway.runs.datasets import DatasetAccess, SampleReader
from gateway.runs.engine.states import is_under_way
from gateway.runs.engine.threads import Threads
from gateway.runs.records import NewSample, RunRecord
from gateway.runs.store.base import RunStore

GROUP_SIZE = 500
"""The most samples of one transaction."""
GROUP_BYTES = 4 << 20
"""The most bytes of requests of one transaction, unless one request alone has more."""
DATASETS_AT_ONCE = 4
"""The most datasets that one gateway reads at once."""
_LOOK_SECONDS = 0.5


class UnreadableDatasetError(Exception):
    """The dataset cannot be read; the message says why."""


def read_samples(run: RunRecord, store: RunStore, access: DatasetAccess) -> bool:
    """Adds every row of a run's dataset to the store, then the manifest. Blocks: call it in a thread.

    Rows that are there already are passed over, so that it may be begun again.

    Args:
        run: The run.
        store: Where the samples go.
        access: What may be read.

    Returns:
        Whether it came to the end: a run that is cancelled meanwhile is not read further.

    Raises:
        UnreadableDatasetError: It cannot be read.
        StoreError: The store cannot be used.
    """
    content = b"" if run.spec.dataset.WhichOneof("source") == "uri" else store.content(run.id)
    reader = SampleReader(run.spec, content, access)
    looked = time.monotonic()
    try:
        for group in _groups(reader):
            store.add_samples(run.id, group)
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                if not is_under_way(store.get_run(run.id), run.attempt):
                    return False
    except DatasetError as error:
        raise UnreadableDatasetError(f"the dataset {error}") from error
    except ServiceError as error:
        raise UnreadableDatasetError(f"the dataset cannot be read: {error.message}") from error
    store.set_manifest(run.id, reader.manifest)
    return True


class DatasetReaders:
    """Reads datasets in threads of its own, so that large ones hold up no run that is evaluated.

    Args:
        store: Where the samples go.
        access: What may be read.
    """

    def __init__(self, store: RunStore, access: DatasetAccess) -> None:
        self._store = store
        self._access = access
        self._threads = Threads(DATASETS_AT_ONCE)
        self._slots = FairSemaphore(DATASETS_AT_ONCE)

    async def read(self, run: RunRecord) -> None:
        """Reads a run's dataset when it is its turn (see ``read_samples``)."""
        async with self._slots.single(run.tenant, run.spec.limits.priority):
            await self._threads(read_samples, run, self._store, self._access)

    def close(self) -> None:
        """Begins to read no further dataset."""
        self._threads.close()


def unusable(manifest: DatasetManifest) -> str:
    """Why nothing of a dataset that was read can be evaluated, in words; empty: something can."""
    if manifest.row_count:
        return ""
    rows = manifest.invalid_row_count
    if not rows:
        return "the dataset has no rows"
    first = manifest.row_errors[0]
    where = f"line {first.line}" + (f", {first.field}" if first.field else "")
    which = (
        f"none of the {rows} rows is a valid request; the first"
        if rows > 1
        else "the only row is no valid request"
    )
    return f"{which}: {where}: {first.description}"


def _groups(samples: SampleReader) -> Iterator[Sequence[NewSample]]:
    group: list[NewSample] = []
    size = 0
    for sample in samples:
        group.append(sample)
        size += len(sample.request)
        if len(group) >= GROUP_SIZE or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
