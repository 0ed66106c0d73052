"""DatasetService: uploads of datasets into the run store."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import dataset_service_pb2 as pb
from dramaturg.api.evaluation.v1 import dataset_service_pb2_grpc
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PREPARING, DatasetFormat
from dramaturg.datasets import Format, format_of
from dramaturg.service.auth.caller import tenant_of
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.service.threads import TenantThreads
from gateway.quotas.gate import quota_exhausted
from gateway.runs.datasets import FORMAT_VALUES
from gateway.runs.records import DatasetRecord, NewDataset
from gateway.runs.service.pages import key_of, next_token, page_size
from gateway.runs.store import DatasetOffsetError, DatasetQuotaError, RunStore
from gateway.runs.store_calls import ServiceCaller, not_found

ServicerContext = grpc.aio.ServicerContext[Any, Any]

CHUNK_BYTES = 1 << 20
"""The bytes of one transaction."""
_DEFAULT_PAGE = 50


class DatasetServicer(dataset_service_pb2_grpc.DatasetServiceServicer):
    """``evaluation.v1.DatasetService``.

    Args:
        store: The run store.
        threads: The threads of long calls.
        max_bytes: The most bytes of a dataset.
        expiry_seconds: How long an incomplete upload is kept without progress.
        quota: Returns the most bytes of a tenant's datasets together; None: any number.
    """

    def __init__(
        self,
        store: RunStore,
        threads: TenantThreads,
        *,
        max_bytes: int,
        expiry_seconds: float,
        quota: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._expiry = timedelta(seconds=expiry_seconds)
        self._quota = quota
        self._caller = ServiceCaller(threads)

    def close(self) -> None:
        """Ends the threads of store calls."""
        self._caller.close()

    async def CreateDataset(
        self, request: pb.CreateDatasetRequest, context: ServicerContext
    ) -> pb.CreateDatasetResponse:
        if request.byte_count > self._max_bytes:
            raise invalid("byte_count", f"is {request.byte_count}; it must be at most {self._max_bytes}")
        tenant = tenant_of(context)
        quota = self._quota(tenant)
        new = NewDataset(
            id=request.sha256,
            tenant=tenant,
            byte_count=request.byte_count,
            display_name=request.display_name,
            format=request.format or _format_of(request.display_name),
        )
        try:
            dataset, _ = await self._caller.call(self._store.datasets.create, new, quota)
        except DatasetQuotaError:
            assert quota is not None
            raise quota_exhausted("dataset_bytes", quota, "bytes of datasets", None) from None
        if dataset.byte_count != request.byte_count:
            raise invalid(
                "byte_count", f"is {request.byte_count}; the dataset of this SHA-256 has {dataset.byte_count}"
            )
        return pb.CreateDatasetResponse(dataset=self._describe(dataset))

    async def WriteDataset(
        self, requests: AsyncIterator[pb.WriteDatasetRequest], context: ServicerContext
    ) -> pb.WriteDatasetResponse:
        tenant = tenant_of(context)
        dataset: DatasetRecord | None = None
        buffer = bytearray()
        async for request in requests:
            if dataset is None:
                dataset = await self._find(request.dataset_id, tenant)
                if request.offset != dataset.received:
                    raise _wrong_offset(dataset.id, dataset.received)
            if dataset.received + len(buffer) + len(request.chunk) > dataset.byte_count:
                raise invalid("chunk", f"exceeds the {dataset.byte_count} bytes of the dataset")
            buffer += request.chunk
            while len(buffer) >= CHUNK_BYTES:
                dataset = await self._append(dataset, bytes(buffer[:CHUNK_BYTES]))
                del buffer[:CHUNK_BYTES]
        if dataset is None:
            raise invalid("dataset_id", "is required in the first message")
        if buffer:
            dataset = await self._append(dataset, bytes(buffer))
        if dataset.received == dataset.byte_count and not dataset.is_ready:
            dataset = await self._complete(dataset)
        return pb.WriteDatasetResponse(dataset=self._describe(dataset))

    async def GetDataset(
        self, request: pb.GetDatasetRequest, context: ServicerContext
    ) -> pb.GetDatasetResponse:
        dataset = await self._find(request.dataset_id, tenant_of(context))
        return pb.GetDatasetResponse(dataset=self._describe(dataset))

    async def ListDatasets(
        self, request: pb.ListDatasetsRequest, context: ServicerContext
    ) -> pb.ListDatasetsResponse:
        size = page_size(request, _DEFAULT_PAGE)
        key = key_of(request, int)
        found = await self._caller.call(
            self._store.datasets.page,
            tenant_of(context),
            limit=size + 1,
            before=None if key is None else int(key[0]),
        )
        response = pb.ListDatasetsResponse(datasets=map(self._describe, found[:size]))
        if len(found) > size:
            response.next_page_token = next_token(request, [found[size - 1].number])
        return response

    async def DeleteDataset(
        self, request: pb.DeleteDatasetRequest, context: ServicerContext
    ) -> pb.DeleteDatasetResponse:
        tenant = tenant_of(context)
        dataset = await self._find(request.dataset_id, tenant)
        for run in await self._caller.call(self._store.runs.active):
            reads = run.tenant == tenant and run.spec.dataset.dataset_id == dataset.id
            if reads and run.state == RUN_STATE_PREPARING:
                raise ServiceError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    error_reason_pb2.ERROR_REASON_DATASET_STATE,
                    f"dataset {dataset.id!r} is being read by run {run.id!r}",
                    metadata={"dataset_id": dataset.id, "run_id": run.id},
                )
        await self._caller.call(self._store.datasets.delete, dataset.id, tenant)
        return pb.DeleteDatasetResponse()

    async def _find(self, dataset_id: str, tenant: str) -> DatasetRecord:
        if not dataset_id:
            raise invalid("dataset_id", "is required in the first message")
        found = await self._caller.call(self._store.datasets.get, dataset_id, tenant)
        if found is None:
            raise not_found("dataset", dataset_id)
        return found

    async def _append(self, dataset: DatasetRecord, content: bytes) -> DatasetRecord:
        try:
            appended = await self._caller.call(
                self._store.datasets.append, dataset.id, dataset.tenant, dataset.received, content
            )
        except DatasetOffsetError as error:
            raise _wrong_offset(dataset.id, error.received) from error
        if appended is None:
            raise not_found("dataset", dataset.id)
        return appended

    async def _complete(self, dataset: DatasetRecord) -> DatasetRecord:
        """Compares the content as it is stored with the SHA-256."""
        digest = hashlib.sha256()

        def pieces() -> Iterator[None]:
            for piece in self._store.datasets.content(dataset):
                digest.update(piece)
                yield

        try:
            await self._caller.exhaust(dataset.tenant, pieces())
        except KeyError:
            raise not_found("dataset", dataset.id) from None
        if digest.hexdigest() != dataset.id:
            await self._caller.call(self._store.datasets.delete, dataset.id, dataset.tenant)
            raise invalid(
                "chunk", f"the content has the SHA-256 {digest.hexdigest()}, not {dataset.id}; it was deleted"
            )
        ready = await self._caller.call(self._store.datasets.set_ready, dataset.id, dataset.tenant)
        if ready is None:
            raise not_found("dataset", dataset.id)
        return ready

    def _describe(self, dataset: DatasetRecord) -> pb.UploadedDataset:
        message = pb.UploadedDataset(
            id=dataset.id,
            display_name=dataset.display_name,
            format=dataset.format,
            byte_count=dataset.byte_count,
            received_byte_count=dataset.received,
            state=pb.DATASET_STATE_READY if dataset.is_ready else pb.DATASET_STATE_UPLOADING,
        )
        message.create_time.FromDatetime(dataset.create_time)
        if not dataset.is_ready:
            message.expire_time.FromDatetime(dataset.update_time + self._expiry)
        return message


def _format_of(name: str) -> DatasetFormat.ValueType:
    return FORMAT_VALUES[format_of(name) or Format.JSONL]


def _wrong_offset(dataset_id: str, received: int) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_DATASET_STATE,
        f"dataset {dataset_id!r} has {received} bytes: the next chunk must begin there",
        metadata={"dataset_id": dataset_id, "received_byte_count": str(received)},
    )
