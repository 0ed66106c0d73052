"""Gives readers of datasets the content of an uploaded one as a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.datasets import DatasetError
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import IsStopped, StoppedError
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.records import DatasetRecord
from gateway.runs.store import RunStore
from gateway.runs.store_calls import not_found

URI_PREFIX = "datasets/"
"""Stands before the id in the address of an uploaded dataset, in the manifest of a run."""


def ready_dataset(store: RunStore, dataset_id: str, tenant: str) -> DatasetRecord:
    """A complete dataset of a tenant.

    Raises:
        ServiceError: NOT_FOUND: it does not exist; FAILED_PRECONDITION: it is being uploaded.
    """
    found = store.datasets.get(dataset_id, tenant)
    if found is None:
        raise not_found("dataset", dataset_id)
    if not found.is_ready:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            error_reason_pb2.ERROR_REASON_DATASET_STATE,
            f"the upload of dataset {dataset_id!r} is not complete: it has {found.received} of "
            f"{found.byte_count} bytes",
            metadata={"dataset_id": dataset_id, "received_byte_count": str(found.received)},
        )
    return found


@contextmanager
def as_file(
    spec: RunSpec,
    tenant: str,
    store: RunStore | None,
    access: DatasetAccess,
    is_stopped: IsStopped = lambda: False,
) -> Iterator[tuple[RunSpec, DatasetAccess]]:
    """A spec whose dataset is a local file with the content of the uploaded one, and the access to that file.

    Specs with another source are unchanged. Blocks.

    Raises:
        DatasetError: The dataset was deleted, or there is no room for the file.
        StoppedError: ``is_stopped`` returned True between two pieces of the dataset.
    """
    if spec.dataset.WhichOneof("source") != "dataset_id":
        yield spec, access
        return
    if store is None:
        raise DatasetError("cannot be read: there is no run store")
    try:
        dataset = ready_dataset(store, spec.dataset.dataset_id, tenant)
    except ServiceError as error:
        raise DatasetError(f"cannot be read: {error.message}") from error
    with tempfile.TemporaryDirectory(prefix="dramaturg-dataset-") as folder:
        path = Path(folder).resolve() / "content"
        try:
            with path.open("wb") as file:
                for piece in store.datasets.content(dataset):
                    if is_stopped():
                        raise StoppedError
                    file.write(piece)
        except KeyError as error:
            raise DatasetError("was deleted while it was read") from error
        except OSError as error:  # for example a full disk
            raise DatasetError(f"cannot be copied to a temporary file: {error.strerror or error}") from error
        local = RunSpec()
        local.CopyFrom(spec)
        local.dataset.uri = str(path)
        local.dataset.format = spec.dataset.format or dataset.format
        yield local, replace(access, folders=(path.parent,))
