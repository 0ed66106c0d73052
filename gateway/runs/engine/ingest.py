"""Reads the datasets of runs into the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from dramaturg.api.evaluation.v1.run_pb2 import DatasetManifest
from dramaturg.database.errors import StoreError
from dramaturg.datasets import DatasetError
from dramaturg.service.errors import ServiceError
from dramaturg.service.fair_semaphore import FairSemaphore
from dramaturg.service.threads import StoppedError, ThreadPool
from gateway.processes.process import OutOfTimeError, ProcessDiedError, ProcessLimits
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.dataset_process import is_small, sample_reader
from gateway.runs.records import RunRecord, is_active_attempt
from gateway.runs.row_reader import read_rows
from gateway.runs.store import RunStore
from gateway.runs.uploads import URI_PREFIX, as_file

logger = logging.getLogger(__name__)

MAX_CONCURRENT_DATASETS = 2
"""The large datasets that one gateway reads at once, and the small ones beside them; of a tenant one each."""
MAX_DEATHS = 3
"""The deaths of a gateway, or of its reader, while it reads a dataset, after which the run fails."""
_STATE_CHECK_SECONDS = 0.5


class UnreadableDatasetError(Exception):
    """The dataset cannot be read. The message has the reason."""


def read_samples(
    run: RunRecord,
    store: RunStore,
    access: DatasetAccess,
    limits: ProcessLimits,
    is_stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Adds each row of a run's dataset to the store, then the manifest. Blocks.

    Rows that the store has are skipped, so that reading may be repeated.

    Args:
        run: The run.
        store: The run store.
        access: The datasets that may be read.
        limits: The limits of the process that reads a large dataset.
        is_stopped: Whether reading is to stop.

    Returns:
        Whether the dataset was read to its end. It is not if the run ended or reading was stopped.

    Raises:
        UnreadableDatasetError: The dataset cannot be read.
        ProcessDiedError: The process that read it died.
        StoreError: The store is unavailable.
    """

    def has_ended() -> bool:
        return is_stopped() or not is_active_attempt(store.runs.get(run.id), run.attempt)

    checked = time.monotonic()
    try:
        with as_file(run.spec, run.tenant, store, access) as (spec, readable):
            content = b"" if spec.dataset.WhichOneof("source") == "uri" else store.runs.content(run.id)
            reader = sample_reader(spec, content, readable, limits, has_ended)
            for group in read_rows(reader):
                store.samples.add(run.id, group)
                if time.monotonic() - checked > _STATE_CHECK_SECONDS:
                    checked = time.monotonic()
                    if has_ended():
                        return False
    except StoppedError:
        return False
    except DatasetError as error:
        raise UnreadableDatasetError(f"the dataset {error}") from error
    except ServiceError as error:
        raise UnreadableDatasetError(f"the dataset cannot be read: {error.message}") from error
    except OutOfTimeError as error:  # it would take as long again
        raise UnreadableDatasetError(f"the dataset cannot be read: {error}") from error
    manifest = DatasetManifest()
    manifest.CopyFrom(reader.manifest)
    if run.spec.dataset.WhichOneof("source") == "dataset_id":
        manifest.uri = f"{URI_PREFIX}{run.spec.dataset.dataset_id}"
    store.runs.set_manifest(run.id, manifest)
    return True


class DatasetIngest:
    """Reads datasets in threads of its own, so that large ones delay neither runs in progress nor small ones.

    Args:
        store: The run store.
        access: The datasets that may be read.
        limits: The limits of a process that reads a dataset.
    """

    def __init__(self, store: RunStore, access: DatasetAccess, limits: ProcessLimits) -> None:
        self._store = store
        self._access = access
        self._limits = limits
        self._threads = ThreadPool(2 * MAX_CONCURRENT_DATASETS)
        self._small, self._large = (FairSemaphore(MAX_CONCURRENT_DATASETS, per_tenant=1) for _ in range(2))
        self._is_closed = threading.Event()
        self._unended: set[str] = set()
        """Runs whose reading ended here without the store's knowledge."""

    async def read(self, run: RunRecord) -> None:
        """Reads the dataset of a run in its fair turn.

        Raises:
            UnreadableDatasetError: The dataset cannot be read, or its reading killed its process three times.
            StoreError: The store is unavailable.
        """
        slots = self._small if await self._threads(self._is_small, run) else self._large
        async with slots.single(run.tenant, run.spec.limits.priority):
            await self._threads(self._read, run)

    def close(self) -> None:
        """Stops reading."""
        self._is_closed.set()
        self._threads.close()

    def _is_small(self, run: RunRecord) -> bool:
        is_inline = run.spec.dataset.WhichOneof("source") == "content"
        return is_inline and is_small(run.spec, self._store.runs.content(run.id))

    def _read(self, run: RunRecord) -> None:
        if run.id in self._unended:
            self._store.runs.end_preparation(run.id)
            self._unended.discard(run.id)
        # A process that dies here leaves the count raised.
        deaths = self._store.runs.begin_preparation(run.id) - 1
        if deaths >= MAX_DEATHS:
            self._end(run.id)
            raise UnreadableDatasetError(
                f"the dataset cannot be read: the process that read it died {deaths} times. "
                "It may need more memory or time than a gateway gives a dataset"
            )
        try:
            access = self._access.of(run.tenant)
            read_samples(run, self._store, access, self._limits, self._is_closed.is_set)
        except ProcessDiedError as error:
            fields = {"run": run.id, "deaths": deaths + 1}
            logger.error("reading a dataset ended its process: %s", error, extra={"fields": fields})
            return
        except BaseException:
            self._end(run.id)
            raise
        self._end(run.id)

    def _end(self, run_id: str) -> None:
        self._unended.add(run_id)
        try:
            self._store.runs.end_preparation(run_id)
        except StoreError as error:
            logger.warning("the end of reading a dataset is recorded later: %s", error)
        else:
            self._unended.discard(run_id)


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
