"""Reads the datasets of runs into the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.run_pb2 import DatasetManifest
from dramaturg.datasets import DatasetError
from dramaturg.service.errors import ServiceError
from gateway.fair_semaphore import FairSemaphore
from gateway.runs.datasets import DatasetAccess, SampleReader
from gateway.runs.records import NewSample, RunRecord, is_active_attempt
from gateway.runs.store.base import RunStore
from gateway.runs.store_calls import ThreadPool

GROUP_SIZE = 500
"""The most samples of one transaction."""
GROUP_BYTES = 4 << 20
"""The most bytes of requests of one transaction, unless a single request has more."""
MAX_CONCURRENT_DATASETS = 4
"""The datasets that one gateway reads at once."""
_STATE_CHECK_SECONDS = 0.5


class UnreadableDatasetError(Exception):
    """The dataset cannot be read. The message has the reason."""


def read_samples(run: RunRecord, store: RunStore, access: DatasetAccess) -> bool:
    """Adds each row of a run's dataset to the store, then the manifest. Blocks.

    Rows that the store has are skipped, so that reading may be repeated.

    Args:
        run: The run.
        store: The run store.
        access: The datasets that may be read.

    Returns:
        Whether the dataset was read to its end. It is not if the run ended meanwhile.

    Raises:
        UnreadableDatasetError: The dataset cannot be read.
        StoreError: The store is unavailable.
    """
    content = b"" if run.spec.dataset.WhichOneof("source") == "uri" else store.content(run.id)
    reader = SampleReader(run.spec, content, access)
    checked = time.monotonic()
    try:
        for group in _groups(reader):
            store.add_samples(run.id, group)
            if time.monotonic() - checked > _STATE_CHECK_SECONDS:
                checked = time.monotonic()
                if not is_active_attempt(store.get_run(run.id), run.attempt):
                    return False
    except DatasetError as error:
        raise UnreadableDatasetError(f"the dataset {error}") from error
    except ServiceError as error:
        raise UnreadableDatasetError(f"the dataset cannot be read: {error.message}") from error
    store.set_manifest(run.id, reader.manifest)
    return True


class DatasetIngest:
    """Reads datasets in threads of its own, so that large ones delay no run in progress.

    Args:
        store: The run store.
        access: The datasets that may be read.
    """

    def __init__(self, store: RunStore, access: DatasetAccess) -> None:
        self._store = store
        self._access = access
        self._threads = ThreadPool(MAX_CONCURRENT_DATASETS)
        self._slots = FairSemaphore(MAX_CONCURRENT_DATASETS)

    async def read(self, run: RunRecord) -> None:
        """Reads the dataset of a run in its fair turn (``read_samples``)."""
        async with self._slots.single(run.tenant, run.spec.limits.priority):
            await self._threads(read_samples, run, self._store, self._access)

    def close(self) -> None:
        """Reads no further dataset."""
        self._threads.close()


def manifest_error(manifest: DatasetManifest) -> str:
    """Why no row of a dataset can be evaluated. Empty: at least one can."""
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
        else "the only row is not a valid request"
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
