"""The client of DatasetService: uploads of datasets for runs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import dataset_service_pb2 as pb
from dramaturg.api.evaluation.v1.dataset_service_pb2 import DATASET_STATE_READY, UploadedDataset
from dramaturg.api.evaluation.v1.dataset_service_pb2_grpc import DatasetServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import DATASET_FORMAT_UNSPECIFIED, DatasetFormat
from dramaturg.run_client import MAX_RECONNECT_SECONDS, answer, pages
from dramaturg.service.errors import ServiceError

CHUNK_BYTES = 1 << 20
"""The bytes of one message."""
MAX_ATTEMPTS = 8
"""The most attempts without progress to continue an upload."""

_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
    }
)


class DatasetClient:
    """The datasets of a gateway (``evaluation.v1.DatasetService``); ``DramaturgClient.datasets`` is one.

    Each method raises ``ServiceError``: NOT_FOUND for a dataset that does not exist.

    Example:
        >>> async with DramaturgClient("localhost:50051") as client:
        ...     dataset = await client.datasets.upload("tasks.jsonl")
        ...     run = await client.runs.create(RunSpec(dataset=Dataset(dataset_id=dataset.id), scripts={}))

    Args:
        channel: The channel to the gateway.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = DatasetServiceStub(channel)

    async def upload(
        self,
        path: str | Path,
        *,
        form: DatasetFormat.ValueType = DATASET_FORMAT_UNSPECIFIED,
        display_name: str | None = None,
        on_progress: Callable[[UploadedDataset], None] | None = None,
    ) -> UploadedDataset:
        """Uploads a file, which is read twice. Content that the tenant has already is not sent.

        Continues after a lost connection, also of an earlier call.

        Args:
            path: The file.
            form: The format. Unspecified: by the suffix of the display name, else JSON Lines.
            display_name: The display name. None: the name of the file.
            on_progress: Called with the dataset at the beginning, after each interruption and at the end.

        Raises:
            ServiceError: INVALID_ARGUMENT: the file is too large, or it changed meanwhile;
                RESOURCE_EXHAUSTED: the quota of the tenant is used up.
            OSError: The file cannot be read.
        """
        file = Path(path)
        sha256, size = await asyncio.to_thread(_digest, file)
        request = pb.CreateDatasetRequest(
            sha256=sha256,
            byte_count=size,
            display_name=file.name[-200:] if display_name is None else display_name,
            format=form,
        )
        dataset = (await answer(self._stub.CreateDataset(request))).dataset
        attempts = 0
        while True:
            if on_progress is not None:
                on_progress(dataset)
            if dataset.state == DATASET_STATE_READY:
                return dataset
            received = dataset.received_byte_count
            try:
                dataset = await self._write(file, dataset)
            except ServiceError as error:
                continues = error.reason == error_reason_pb2.ERROR_REASON_DATASET_STATE
                if not continues and error.code not in _TRANSIENT:
                    raise
                attempts += 1
                if attempts >= MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(min(MAX_RECONNECT_SECONDS, 0.1 * 2**attempts))
                dataset = await self.get(dataset.id)
            if dataset.received_byte_count > received:
                attempts = 0

    async def get(self, dataset_id: str) -> UploadedDataset:
        """Returns a dataset."""
        return (await answer(self._stub.GetDataset(pb.GetDatasetRequest(dataset_id=dataset_id)))).dataset

    def find(self) -> AsyncGenerator[UploadedDataset]:
        """Yields the datasets of the tenant, the newest first."""
        return pages(self._stub.ListDatasets, pb.ListDatasetsRequest(), "datasets")

    async def delete(self, dataset_id: str) -> None:
        """Deletes a dataset. Runs whose samples are read are unaffected."""
        await answer(self._stub.DeleteDataset(pb.DeleteDatasetRequest(dataset_id=dataset_id)))

    async def _write(self, path: Path, dataset: UploadedDataset) -> UploadedDataset:
        with path.open("rb") as file:
            file.seek(dataset.received_byte_count)
            requests = _requests(file, dataset)
            return (await answer(self._stub.WriteDataset(requests))).dataset


async def _requests(file: BinaryIO, dataset: UploadedDataset) -> AsyncIterator[pb.WriteDatasetRequest]:
    left = dataset.byte_count - dataset.received_byte_count
    first = pb.WriteDatasetRequest(dataset_id=dataset.id, offset=dataset.received_byte_count)
    yield first
    while left > 0 and (chunk := await asyncio.to_thread(file.read, min(CHUNK_BYTES, left))):
        left -= len(chunk)
        yield pb.WriteDatasetRequest(chunk=chunk)


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return digest.hexdigest(), file.tell()
